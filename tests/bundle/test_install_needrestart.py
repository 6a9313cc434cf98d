"""needrestart, which apt runs after an upgrade, leaves the model server's unit alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.installation import install, snapshot, uninstall
from omniwatch import settings
from omniwatch.bundle import render, units
from omniwatch.bundle.units import Asked

LEFT_ALONE = "etc/needrestart/conf.d/omniwatch.conf"


@pytest.fixture
def root(root: Path) -> Path:
    """A device with needrestart."""
    (root / LEFT_ALONE).parent.mkdir(parents=True)
    return root


@pytest.mark.slow
def test_the_exception_comes_with_the_model_server_and_goes_with_it(root):
    before = snapshot(root)
    assert install(root).exit_code == 0
    assert not (root / LEFT_ALONE).exists(), "no model server is installed"
    done = install(root, "--profile", "orin")
    assert done.exit_code == 0, done.output
    assert f"wrote {root / LEFT_ALONE}\n" in done.output
    assert install(root, "--profile", "orin").output.endswith("nothing to change\n")
    assert uninstall(root, "--purge").exit_code == 0
    assert snapshot(root) == before


def test_where_there_is_no_needrestart_nothing_is_made_for_it(root):
    (root / LEFT_ALONE).parent.rmdir()
    assert install(root, "--profile", "orin").exit_code == 0
    assert not (root / LEFT_ALONE).parent.exists()


@pytest.mark.programs
@pytest.mark.parametrize("unit", ["qwen3-omni.service", "model@a.service", "a\\x2db.service"])
def test_perl_reads_it_and_it_names_that_unit_alone(root, unit, tmp_path):
    """needrestart evaluates such a file with its settings in %nrconf, and matches a unit's name with each key."""
    site = settings.parse(f"server: {{unit: '{unit}', profile: orin}}", "omniwatch.yaml")
    asked = Asked(root, site, with_server=True)
    path = root / LEFT_ALONE
    (item,) = [
        one for one in units.SERVER.items(asked, render.render(site)) if one.path.name == "omniwatch.conf"
    ]
    path.write_bytes(item.content)
    judged = "\n".join(
        (
            "our %nrconf = (override_rc => {});",
            f"do '{path}'; die $@ if $@;",
            "for my $name (@ARGV) {",
            "  print grep({ $name =~ /$_/ && !$nrconf{override_rc}{$_} } keys %{$nrconf{override_rc}}) ? 1 : 0;",
            "}",
        )
    )
    names = [unit, f"x{unit}", f"{unit}x", unit.replace(".", "-")]
    done = subprocess.run(["perl", "-e", judged, *names], capture_output=True, text=True, check=True)
    assert done.stdout == "1000"
