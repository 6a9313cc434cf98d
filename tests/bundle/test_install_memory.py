"""What an installation takes the device's memory and profile for: what is measured, what is given, and what a config says."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.installation import CONFIG, device, install, packaged, snapshot
from helpers.trees import grow
from omniwatch import settings
from omniwatch.bundle import render
from omniwatch.settings import Settings

pytestmark = pytest.mark.slow


def test_a_first_config_is_valid_and_says_what_was_chosen(root: Path) -> None:
    install(root, "--profile", "3b-int8-moe4")
    config = settings.load(root / CONFIG)
    assert config.server.profile == "3b-int8-moe4"
    assert config.server.device_memory_gb == pytest.approx(64.3), "as measured"


@pytest.mark.parametrize("way", ["installed", "packaged", "configured"])
def test_a_profile_has_to_fit_what_is_measured_also_where_there_is_a_config(tmp_path: Path, way: str) -> None:
    """A plain installation, and the package, leave a config of which nobody chose the memory."""
    root = device(tmp_path, memory_kb=32_000_000)
    shipped = {path.name: text for path, text in render.render(Settings()).items()}["omniwatch.yaml"]
    if way == "installed":
        assert install(root).exit_code == 0
    else:
        grow(root, f"{CONFIG}: ")
        (root / CONFIG).write_text(shipped if way == "packaged" else "server: {device_memory_gb: 256}")
    if way == "packaged":
        packaged(root)
    before = snapshot(root)
    done = install(root, "--profile", "orin")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "profile orin does not fit" in done.stderr
    assert "the device has 33 GB" in done.stderr
    assert snapshot(root) == before
    assert install(root, "--profile", "orin", "--device-memory-gb", "64").exit_code == 0


def test_less_memory_than_measured_is_believed(root: Path) -> None:
    grow(root, f"{CONFIG}: server: {{device_memory_gb: 40}}")
    assert "the device has 40 GB" in install(root, "--profile", "orin").stderr


@pytest.mark.parametrize(
    ("memory_kb", "says"), [(62841200, "device_memory_gb: 64.3"), (32_000_000, None), (None, None)]
)
def test_a_first_config_states_no_memory_that_nobody_measured(
    tmp_path: Path, memory_kb: int | None, says: str | None
) -> None:
    """Nor one that the profile it names, which nobody asked for, does not fit: nothing could be rendered with it."""
    assert install(device(tmp_path, memory_kb)).exit_code == 0
    lines = [line.strip() for line in (tmp_path / CONFIG).read_text().splitlines()]
    assert [line for line in lines if "device_memory_gb" in line] == ([says] if says else [])
    assert render.render(settings.load(tmp_path / CONFIG))


def test_a_config_that_is_kept_and_differs_is_told_of(root: Path) -> None:
    install(root)
    done = install(root, "--profile", "orin-int4", "--device-memory-gb", "70.5")
    assert done.exit_code == 0
    assert done.stderr.splitlines()[:2] == [
        f"note: {root / CONFIG}: server.profile is orin there; set it to orin-int4",
        f"note: {root / CONFIG}: server.device_memory_gb is 64.3 there; set it to 70.5",
    ]
    config = (root / CONFIG).read_text()
    (root / CONFIG).write_text(config.replace("orin", "orin-int4").replace("64.3", "70.5"))
    assert (
        install(root, "--profile", "orin-int4", "--device-memory-gb", "70.5").output == "nothing to change\n"
    )
