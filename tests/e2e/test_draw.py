"""`omniwatch dashboards draw`: all dashboards, from a real Prometheus with a known past."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from omniwatch.backtest.tsdb import Tsdb
from omniwatch.bundle import dashboard_lint, render
from omniwatch.cli import main
from omniwatch.settings import Settings

START = 1_768_478_400
LENGTH_S = 300
KNOWN = {
    'omni_codec_drift_ms{stream="0"}': -72.5,
    'omniwatch_build_info{version="1.2.3"}': 1,
    'omniwatch_source_up{source="tail:/run/omniwatch/events.jsonl"}': 1,
    'omni_server_cpu_period_seconds{unit="qwen3-omni.service"}': 0.05,
    'omni_server_running{unit="qwen3-omni.service"}': 0,
}
DASHBOARDS = {
    path.stem: json.loads(text)
    for path, text in render.render(Settings()).items()
    if path.parts[0] == "dashboards"
}


def past() -> Iterator[tuple[float, str]]:
    for t in range(START, START + LENGTH_S + 1):
        lines = (
            f'{name.removesuffix("}")},job="omniwatch",device="van-{n}"}} {value} {t}\n'
            for name, value in KNOWN.items()
            for n in (1, 2)
        )
        yield t, "".join(lines)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The words in each dashboard's picture of one device."""
    directory = tmp_path_factory.mktemp("draw")
    tsdb = Tsdb(directory, 1, 5)
    tsdb.fill(past())
    arguments = [
        "--start",
        START,
        "--end",
        START + LENGTH_S,
        "--var",
        "device=van-1",
        "--out",
        directory / "out",
    ]
    with tsdb:
        done = CliRunner().invoke(
            main,
            ["dashboards", "draw", "--prometheus", tsdb.url, *map(str, arguments)],
            catch_exceptions=False,
        )
    assert done.exit_code == 0, done.output
    pictures = sorted((directory / "out").iterdir())
    assert done.output.splitlines() == [f"drawn: {path}" for path in pictures]
    return {path.stem: words(path) for path in pictures}


def words(path: Path) -> set[str]:
    texts = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()) for text in texts}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_picture_has_every_panel_and_says_where_there_is_no_data(drawn, name):
    panels = dashboard_lint.panels(DASHBOARDS[name])
    assert {DASHBOARDS[name]["title"], *(panel["title"] for panel in panels)} <= drawn[name]
    assert "2026-01-15 12:00:00 to 12:05:00 UTC" in drawn[name]
    assert "No data" in drawn[name]


def test_values_are_there_in_their_units(drawn):
    assert "50 ms" in drawn["device"]
    assert "none" in drawn["device"]
    assert {"-60 ms", "van-1 stream 0"} <= drawn["streaming"]
    assert "van-1 tail:/run/omniwatch/events.jsonl" in drawn["device"]


def test_devices_that_were_not_chosen_are_not_drawn(drawn):
    assert not [text for found in drawn.values() for text in found if "van-2" in text]
