"""`omniwatch dashboards draw`: all dashboards, from a real Prometheus with a known past."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from helpers.needs import NEGATIVE_OFFSET
from omniwatch.bundle import dashboard_json, render
from omniwatch.cli import main
from omniwatch.desk.backtest.tsdb import Tsdb
from omniwatch.settings import Settings

pytestmark = pytest.mark.needs(NEGATIVE_OFFSET)

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
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that holds the past."""
    tsdb = Tsdb(tmp_path_factory.mktemp("tsdb"), 1, 5)
    tsdb.fill(past())
    with tsdb:
        yield tsdb.url


def draw(url: str, out: Path, *arguments: str) -> Result:
    times = ["--start", str(START), "--end", str(START + LENGTH_S)]
    command = ["dashboards", "draw", "--prometheus.url", url, *times, "--out", str(out), *arguments]
    return CliRunner().invoke(main, command, catch_exceptions=False)


@pytest.mark.parametrize("names", [["streaming"], []], ids=["one dashboard", "all"])
def test_a_value_that_nothing_has_is_refused(url, tmp_path, names):
    done = draw(url, tmp_path, "--var", "device=nosuch", *names)
    assert (done.exit_code, done.stdout) == (2, "")
    message = "--var device=nosuch: no such device in this time; there are van-1, van-2"
    assert done.stderr == f"Error: {message}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def drawn(url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The words in each dashboard's picture of one device."""
    directory = tmp_path_factory.mktemp("draw")
    done = draw(url, directory / "out", "--var", "device=van-1")
    assert done.exit_code == 0, done.output
    pictures = sorted((directory / "out").iterdir())
    assert done.output.splitlines() == [f"drawn: {path}" for path in pictures]
    return {path.stem: words(path) for path in pictures}


def words(path: Path) -> set[str]:
    texts = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()) for text in texts}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_picture_has_every_panel_and_says_where_there_is_no_data(drawn, name):
    panels = dashboard_json.panels(DASHBOARDS[name])
    assert {DASHBOARDS[name]["title"], *(panel["title"] for panel in panels)} <= drawn[name]
    assert "2026-01-15 12:00:00 to 12:05:00 UTC" in drawn[name]
    assert "No data" in drawn[name]


def test_values_are_there_in_their_units(drawn):
    assert "50 ms" in drawn["device"]
    assert "none" in drawn["device"]
    assert {"-60 ms", "van-1 stream 0: last -72.5 ms, max -72.5 ms"} <= drawn["streaming"]
    assert "van-1 tail:/run/omniwatch/events.jsonl" in drawn["device"]


def test_devices_that_were_not_chosen_are_not_drawn(drawn):
    assert not [text for found in drawn.values() for text in found if "van-2" in text]
