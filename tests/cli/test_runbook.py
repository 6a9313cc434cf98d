"""`omniwatch runbook`: the page of an alert in a terminal."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

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


@pytest.mark.parametrize("name", ["CodecDrift", "codecdrift", "codec", "decDr", "CodecDrift.md"])
def test_a_name_need_not_be_whole(name):
    assert run(name).output.startswith("# CodecDrift\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Tokn", 'no runbook "Tokn"; the closest is "TokenRTT"'),
        ("drift", '"drift" may be CodecDrift, DriftAhead, DriftImminent'),
        ("resume", '"resume" may be ResumeFailing, ResumeSlow'),
        ("", '"" may be '),
    ],
)
def test_a_name_that_is_not_plain_is_one_line(name, message):
    stderr = run(name, exit_code=2).stderr
    assert stderr.startswith(f"Error: {message}")
    assert stderr.count("\n") == 1
