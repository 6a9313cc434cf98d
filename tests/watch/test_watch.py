"""`omniwatch watch`: bytes a second over a terminal, one frame without one, narrow, without Unicode, and its exit codes."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers import imports
from helpers.events import T0, audio
from helpers.sidecars import Times, write
from helpers.web_calls import pages
from omniwatch.cli import main
from omniwatch.settings import Settings
from omniwatch.sidecar.loop import Sidecar
from omniwatch.sources.tail import Tail
from omniwatch.watch.braille import drawn
from omniwatch.watch.window import Window
from omniwatch.web import make_app
from omniwatch.web.server import serve

COLUMNS, ROWS = 80, 24
WATCHED_S = 6.0


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Callable[[float], str]]:
    """Serve a sidecar whose clocks go on by a second with each question; its listener's voice lags by so much."""
    times = Times()
    events = tmp_path / "events.jsonl"
    one = Sidecar(Settings(), [Tail(events)], clock=lambda: times.wall, monotonic=lambda: times.steady)
    lag = [0.0]

    def pass_by(seconds: int) -> None:
        for _ in range(seconds):
            at = times.wall - T0
            said = [
                audio(at, f"s{n}", pts_ms=at * 1000 - lag[0] * (n + 1), video_pts_ms=at * 1000)
                for n in range(2)
            ]
            write(events, *said, writer=f"w{at}")
            times.wall, times.steady = times.wall + 1, times.steady + 1
            one.step()

    def live(since: str, packed: bool) -> bytes:
        pass_by(1)
        return one.live(since, packed)

    with serve(["127.0.0.1:0"], make_app(pages(live=live))) as server:

        def url(lag_ms: float) -> str:
            lag[0] = lag_ms
            pass_by(40)
            return server.urls[0]

        yield url
    one.close()


def once(*words: str, **environ: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["watch", *words], env={"LANG": "C.UTF-8", "LC_ALL": "", **environ})
    return done.exit_code, done.output


def in_terminal(url: str, watched_s: float = WATCHED_S, **own: str) -> tuple[bytes, float, int | None]:
    """Return what a terminal gets until so long after its first frame, after how many seconds that came, and the exit code if it ended."""
    master, slave = pty.openpty()
    environ = os.environ | {
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "LINES": str(ROWS),
        "LC_ALL": "C.UTF-8",
        **own,
    }
    began = time.monotonic()
    watch = subprocess.Popen(
        [sys.executable, "-m", "omniwatch", "watch", url],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environ,
    )
    os.close(slave)
    got, first_s, ended = b"", 0.0, None
    try:
        while not first_s or time.monotonic() - began < first_s + watched_s:
            assert time.monotonic() - began < 60
            if select.select([master], [], [], 0.2)[0]:
                got += os.read(master, 65536)
                if not first_s and b"TokenRTT" in got:
                    first_s = time.monotonic() - began
    except OSError:
        # So a terminal says that its program has ended.
        ended = watch.wait(10)
    finally:
        watch.terminate()
        watch.wait(10)
        os.close(master)
    return got, first_s, ended


@pytest.mark.programs
def test_a_terminal_gets_at_most_10_kb_a_second(sidecar: Callable[[float], str]) -> None:
    got, first_s, _ = in_terminal(sidecar(70.0))
    rate = len(got) / (WATCHED_S + 1)
    figures = f"{rate:,.0f} bytes a second at {COLUMNS}x{ROWS}, first frame after {first_s:.2f} s"
    assert 500 < rate <= 10_000, figures
    assert max(got.decode("utf-8", "replace")) >= "\u2800"


@pytest.mark.programs
def test_a_terminal_without_colours_gets_none(sidecar: Callable[[float], str]) -> None:
    got, _, ended = in_terminal(sidecar(70.0), 1.5, NO_COLOR="1", COLUMNS="40")
    assert (ended, b"\x1b[" in got) == (None, True)
    assert b"!! CodecDrift" in got
    assert not re.search(rb"\x1b\[(\d+;)*[349]\d(;\d+)*m", got)


@pytest.mark.programs
def test_a_terminal_that_cannot_draw_gets_one_frame(sidecar: Callable[[float], str]) -> None:
    got, _, ended = in_terminal(sidecar(70.0), 30.0, TERM="dumb")
    assert ended == 1
    assert b"\x1b" not in got
    assert got.count(b"!! CodecDrift") == 1


def test_one_frame_without_colours_and_exit_1_where_somebody_suffers(sidecar: Callable[[float], str]) -> None:
    status, text = once(sidecar(70.0), "--once")
    assert status == 1
    assert "\x1b" not in text
    assert "!! CodecDrift would fire since" in text
    assert "Listener: 0, 1." in text
    assert "-140 ms" in text


def test_all_is_well_is_exit_0(sidecar: Callable[[float], str]) -> None:
    status, text = once(sidecar(5.0))
    assert status == 0
    assert "ok All is well. Listeners: 2." in text


def test_chinese_by_the_environment(sidecar: Callable[[float], str]) -> None:
    assert "一切正常。听者数：2。" in once(sidecar(5.0), LANG="zh_CN.UTF-8")[1]


@pytest.mark.programs
def test_without_unicode_and_40_columns_wide(sidecar: Callable[[float], str]) -> None:
    environ = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "COLUMNS": "40"}
    words = [sys.executable, "-m", "omniwatch", "watch", "--once", sidecar(70.0)]
    done = subprocess.run(words, env=environ, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    text = done.stdout.decode("ascii")
    assert "*" in text
    assert max(map(len, text.splitlines())) <= 40


def test_a_sidecar_that_is_not_reached_is_exit_2() -> None:
    status, text = once("http://127.0.0.1:9", "--once")
    assert status == 2
    assert text.startswith("Error: http://127.0.0.1:9/live.json: ")


@pytest.mark.parametrize("words", [["--user", "ops"], ["--password-file", "/x"], ["--ca-file", "/none"]])
def test_a_login_that_is_half_given_is_refused(words: list[str]) -> None:
    status, text = once("http://127.0.0.1:9", *words)
    assert (status, text.count("\n")) == (2, 1)


def test_another_version_of_the_feed_is_refused() -> None:
    with serve(["127.0.0.1:0"], make_app(pages(live=lambda since, packed: b'{"schema":7}'))) as server:
        status, text = once(server.urls[0], "--once")
    assert status == 2
    assert "version 7 of the feed" in text


def test_what_is_new_is_put_behind_what_was() -> None:
    window = Window()
    head = {"schema": 1, "cursor": "a", "reset": True}
    window.take(head | {"history": {"count": 2, "columns": {"0": {"drift": [1, None]}}}})
    new = {"count": 1, "columns": {"0": {"drift": [2]}, "3": {"rtt": [9]}}}
    window.take(head | {"reset": False, "history": new})
    assert window.curves["0"] == {"drift": [1, None, 2], "rtt": [None] * 3}
    assert window.curves["3"]["rtt"] == [None, None, 9]


def test_a_curve_in_braille_and_in_ascii() -> None:
    assert drawn([0, None, 10, 10], [], 0, 10, width=2, height=1) == ["\u2840\u2809"]
    assert drawn([0, None, 10, 10], [], 0, 10, width=4, height=2, plain=True) == ["  **", "*   "]


def test_rich_is_for_this_command_alone() -> None:
    needing = {
        module
        for module, needs in imports.of_modules().items()
        if any(need.partition(".")[0] == "rich" for need in needs)
    }
    assert needing == {"omniwatch.cli.watch", "omniwatch.watch.frame"}
