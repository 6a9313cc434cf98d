"""Draw docs/live-page.png: a simulated overload on the live page, in a real Chromium. `python -m helpers.live_page_picture FILE`."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from suites.browser import installation

OMNIWATCH = (sys.executable, "-m", "omniwatch")
START_T = 1_768_478_400
"""2026-01-15 12:00:00 UTC."""
FAULT_S, MOMENT = 700, 820
"""Seconds into the recording: when the overload begins, and a moment at which both rules fire."""
WIDTH, HEIGHT = 1280, 1570


def main(target: Path) -> None:
    sys.path.append(str(installation.install(installation.directory())))
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="omniwatch-picture-") as name:
        file = Path(name) / "overload.jsonl"
        simulate = [
            *OMNIWATCH,
            "simulate",
            "--scenario=overload",
            "--speed=max",
            f"--start-time={START_T}",
            f"--fault-at={FAULT_S}",
            f"--mend-at={MOMENT + 60}",
            f"--duration={MOMENT + 90}",
        ]
        with file.open("w") as out:
            subprocess.run(simulate, stdout=out, check=True)
        serve = [*OMNIWATCH, "replay", str(file), "--serve", "--config.file=/dev/null"]
        with (
            subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as served,
            sync_playwright() as playwright,
        ):
            assert served.stdout is not None
            url = served.stdout.readline().strip()
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_context(
                viewport={"width": WIDTH, "height": HEIGHT}, timezone_id="UTC", locale="en"
            ).new_page()
            page.goto(url)
            page.locator("#moment").fill(str(MOMENT))
            page.get_by_text("would fire since").first.wait_for()
            page.mouse.move(0, 0)
            target.write_bytes(page.screenshot())
            browser.close()
            served.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
