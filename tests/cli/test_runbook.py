"""`omniwatch runbook`: the page of an alert in a terminal."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from helpers.bundles import HOSTILE
from omniwatch.bundle import data
from omniwatch.cli import main


def run(*arguments: str, exit_code: int = 0):
    result = CliRunner().invoke(main, ["runbook", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def test_every_page_is_shown_as_it_is():
    names = run().output.split()
    assert names == sorted(path.stem for path in (data.root() / "runbooks").glob("*.md"))
    for name in names:
        text = (data.root() / f"runbooks/{name}.md").read_text()
        assert run(name).output.rstrip("\n") == text.rstrip("\n")


def test_how_to_reach_the_device_comes_first(tmp_path):
    config = tmp_path / "omniwatch.yaml"
    config.write_text(f"site: {{access: {json.dumps(HOSTILE)}}}")
    shown = run("CodecDrift", "--config.file", str(config)).output
    assert shown.startswith(f"The device: {HOSTILE}\n\n# CodecDrift\n")
    config.write_text(r'site: {access: "ssh \e[2J"}')
    assert "site.access" in run("CodecDrift", "--config.file", str(config), exit_code=2).stderr


@pytest.mark.parametrize("name", ["CodecDrift", "codecdrift", "codec", "decDr", "CodecDrift.md"])
def test_a_name_need_not_be_whole(name):
    assert run(name).output.startswith("# CodecDrift\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Tokn", 'no runbook "Tokn"; the closest is "TokenRTT"'),
        ("Foo", 'no runbook "Foo"; `omniwatch runbook` lists all'),
        ("drift", '"drift" may be CodecDrift, DriftAhead'),
        ("throttling", '"throttling" may be CPUThrottling, HardwareThrottling'),
        ("", '"" may be '),
    ],
)
def test_a_name_that_is_not_plain_is_one_line(name, message):
    stderr = run(name, exit_code=2).stderr
    assert stderr.startswith(f"Error: {message}")
    assert stderr.count("\n") == 1
