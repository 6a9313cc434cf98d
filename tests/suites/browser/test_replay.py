"""A recording on the live page: `omniwatch replay FILE --serve`."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from suites.browser.sidecar import OMNIWATCH
from suites.browser.test_page import expect, is_live

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("replay") / "overload.jsonl"
    simulate = [*OMNIWATCH, "simulate", "--scenario=overload", "--speed=max", "--start-time=1768478400"]
    with file.open("w") as out:
        subprocess.run(simulate, stdout=out, check=True)
    command = [*OMNIWATCH, "replay", str(file), "--serve", f"--config.file={Path('/dev/null')}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        yield served.stdout.readline().strip()
        served.send_signal(signal.SIGINT)
        assert served.wait(20) == 0


def test_a_keyboard_goes_through_an_incident(url, look, violations) -> None:
    page = is_live(look(url))
    assert url.startswith("http://127.0.0.1:")
    slider = page.get_by_role("slider", name="Moment of the recording")
    sentence, curve = page.locator("#sentence"), page.locator("#drift-curve")
    expect(sentence).to_contain_text("All is well")
    expect(curve).to_have_attribute("data-marks", re.compile("firing"))
    whole = page.locator("#turns li").count()
    slider.focus()
    page.keyboard.press("Home")
    expect(curve).to_have_attribute("data-marks", "")
    expect(page.locator("#turns li")).to_have_count(0)
    slider.fill("100")
    expect(sentence).to_contain_text("would fire since")
    expect(page.locator("#listeners tr").first).to_contain_text("CodecDrift firing")
    assert 0 < page.locator("#turns li").count() < whole
    assert slider.get_attribute("aria-valuetext").endswith(", 1:40")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#moment-shown")).to_contain_text("1:39 / 3:20")
    assert violations(page) == []


def test_a_pointer_does_too(url, look) -> None:
    page = is_live(look(url))
    box = page.locator("#moment").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)
    expect(page.locator("#moment-shown")).to_contain_text(re.compile(r"1:(3\d|4\d) / 3:20"))
    expect(page.locator("#sentence")).to_contain_text("would fire since")


def test_a_turn_of_a_recording_unfolds(url, look) -> None:
    page = is_live(look(url))
    page.locator("#turns summary").first.press("Enter")
    expect(page.locator("#turns details").first.locator(".waterfall > div").first).to_contain_text("thinking")
    page.get_by_role("link", name="What to do").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("TokenRTT")
    assert page.locator(":target").inner_text() == page.url.partition("#")[2]
