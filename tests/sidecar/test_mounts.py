"""What a container lacks of its host is said in a line each, with its cost and the flag that brings it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniwatch.sidecar import mounts
from omniwatch.sources import SourceError


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A root that shows all of its host."""
    for name in ("sys/fs/cgroup/system.slice", "run/dbus", "spool", "state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/dbus/system_bus_socket").touch()
    return tmp_path


def missing(
    host: Path, source: str = "tail:{}/spool/events.jsonl", state: Path | None = Path("/state")
) -> list[str]:
    return list(mounts.missing([source.format(host)], state, host))


def test_all_is_there(host: Path) -> None:
    assert missing(host) == []


def test_the_first_version_of_cgroups_has_a_tree_for_each_controller(host: Path) -> None:
    (host / "sys/fs/cgroup/cpu").mkdir()
    (host / "sys/fs/cgroup/system.slice").rename(host / "sys/fs/cgroup/cpu/system.slice")
    assert missing(host) == []


def test_each_mount_by_itself(host: Path) -> None:
    assert missing(host, state=None) == [
        "no directory for state can be written, so counters start over: -v omniwatch-state:/var/lib/omniwatch"
    ]
    (host / "run/dbus/system_bus_socket").unlink()
    assert [line.partition(",")[0] for line in missing(host)] == ["the system bus is hidden"]
    (host / "sys/fs/cgroup/system.slice").rmdir()
    assert [line.partition(",")[0] for line in missing(host)] == [
        "the host's cgroups are hidden",
        "the system bus is hidden",
    ]


@pytest.mark.parametrize(
    "spec",
    ["tail:{}/gone/events.jsonl", "{}/gone/events.jsonl", "tail:{}/gone/*.jsonl", "tail:{}/gone/*/*.jsonl"],
)
def test_a_folder_of_events_that_is_missing(host: Path, spec: str) -> None:
    assert missing(host, spec) == [
        f"{host}/gone is missing, so no events are read: -v {host}/gone:{host}/gone:ro"
    ]


def test_a_folder_of_events_of_a_group_that_we_are_not_in(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    group = (host / "spool").stat().st_gid
    assert missing(host) == [f"{host}/spool is not readable, so no events are read: --group-add {group}"]


def test_standard_input_and_the_journal_need_no_folder(host: Path) -> None:
    assert missing(host, "-") == missing(host, "journal:qwen3-omni.service") == []


def test_the_journal_is_refused_where_there_is_no_journalctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    mounts.refuse(["tail:/run/omniwatch/events.jsonl", "-"])
    with pytest.raises(SourceError, match=r"journal:x\.service: this container has no journalctl"):
        mounts.refuse(["journal:x.service"])
