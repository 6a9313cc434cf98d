"""What the live page costs who looks at it, in Debian's Chromium: first paint, and scripting with 2 and with 64 listeners.

python tests/bench/page_in_browser.py [SECONDS]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pages import TESTS, sidecar

MOST_SCRIPT_MS = {2: 5.0, 64: 20.0}
"""Milliseconds of scripting that the page may need each second, by listeners."""
MOST_PAINT_MS = 300.0
VISITS = 5
SAMPLE_US = 100
NO_SCRIPT = {"(root)", "(idle)", "(program)"}
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
PAINT = "() => performance.getEntriesByName('first-contentful-paint').map(one => one.startTime)"


def first_paint_ms(browser: Any, url: str) -> tuple[float, float]:
    """Return when a browser that knows nothing of the page yet has painted something, and when it has the listeners' state."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    began = time.perf_counter()
    page.goto(url)
    page.locator("#live").wait_for(state="visible")
    state_ms = 1000 * (time.perf_counter() - began)
    (painted_ms,) = page.evaluate(PAINT)
    context.close()
    return painted_ms, state_ms


def script_ms(browser: Any, url: str, seconds: float) -> tuple[float, float]:
    """Return the milliseconds that an open page needs each second: in its scripts, by the engine's own profiler, and for all."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(url)
    page.locator("#live").wait_for(state="visible")
    session = context.new_cdp_session(page)
    for command in ("Performance.enable", "Profiler.enable"):
        session.send(command)
    session.send("Profiler.setSamplingInterval", {"interval": SAMPLE_US})

    def used_s() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    page.wait_for_timeout(3000)
    session.send("Profiler.start")
    before, began = used_s(), time.monotonic()
    page.wait_for_timeout(seconds * 1000)
    whole_s, passed_s = used_s() - before, time.monotonic() - began
    profile = session.send("Profiler.stop")["profile"]
    context.close()
    # What answers come in by are promises, which the metric ScriptDuration leaves out.
    scripts = {one["id"] for one in profile["nodes"] if one["callFrame"]["functionName"] not in NO_SCRIPT}
    timed = zip(profile["samples"], profile["timeDeltas"], strict=True)
    script_us = sum(delta for node, delta in timed if node in scripts)
    return script_us / 1000 / passed_s, 1000 * whole_s / passed_s


def main(seconds: float) -> bool:
    """Print the figures; return whether they are within bounds."""
    sys.path.insert(0, str(TESTS))
    from suites.browser import installation

    sys.path.append(str(installation.install(installation.directory())))
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        print("page_in_browser: there is no Chromium here")
        return True
    within = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        for listeners, most_ms in MOST_SCRIPT_MS.items():
            with tempfile.TemporaryDirectory() as name, sidecar(Path(name), listeners) as (_, url):
                time.sleep(3)
                visits = [first_paint_ms(browser, url) for _ in range(VISITS)]
                painted_ms, state_ms = (statistics.median(times) for times in zip(*visits, strict=True))
                script, whole = script_ms(browser, url, seconds)
            print(
                f"{listeners} listeners: first paint after {painted_ms:.0f} ms, {painted_ms / MOST_PAINT_MS:.2f} of what it may be; "
                f"the state after {state_ms:.0f} ms\n  scripting {script:.1f} ms a second, {script / most_ms:.2f} of what it may be; "
                f"with layout and drawing {whole:.1f} ms"
            )
            within.append(painted_ms <= MOST_PAINT_MS and script <= most_ms)
        browser.close()
    return all(within)


if __name__ == "__main__":
    sys.exit(not main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0))
