"""The probe as a standing check, in a process of its own."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.uvicorn_server import HANG, Serving, Speaker, speech, text, wait
from helpers.waiting import wait_until

METRICS = re.compile(r"metrics=(http://127\.0\.0\.1:[0-9]+/)")


class Standing:
    """A probe at work: where its metrics are, and what it logs."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def text(self) -> str:
        with urllib.request.urlopen(self.url + "metrics", timeout=10) as response:
            return response.read().decode()

    def value(self, name: str, **labels: str) -> float | None:
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None


@contextlib.contextmanager
def standing(url: str, *words: str) -> Iterator[Standing]:
    command = [sys.executable, "-m", "omniwatch", "probe", url, "--web.listen-address=127.0.0.1:0", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = METRICS.search(first)
        assert found, first + process.stderr.read()
        try:
            yield Standing(process, found[1])
        finally:
            process.kill()


@pytest.mark.programs
def test_rounds_go_on_and_their_metrics_are_clean() -> None:
    speaker = Speaker([wait(0.2), speech(80), wait(0.6), speech(80)])
    with (
        Serving(speaker) as server,
        standing(f"http://{server.authority}", "--interval=0.1", "--turns=2") as probe,
    ):
        wait_until(lambda: (probe.value("omni_probe_turns_total", outcome="ok") or 0) >= 4)
        wait_until(lambda: probe.value("omni_probe_success") == 1)
        exposed = probe.text()
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=exposed, capture_output=True, text=True, check=False
        )
        drift_s = probe.value("omni_probe_drift_seconds")
        probe.process.send_signal(signal.SIGTERM)
        assert probe.process.wait(20) == 0
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert drift_s is not None
    assert drift_s < -0.1
    values = {
        (sample.name, sample.labels.get("le"), sample.labels.get("outcome")): sample.value
        for family in text_string_to_metric_families(exposed)
        for sample in family.samples
    }
    count = values["omni_probe_first_audio_seconds_count", None, None]
    assert values["omni_probe_first_audio_seconds_bucket", "0.1", None] == 0
    assert values["omni_probe_first_audio_seconds_sum", None, None] >= 0.2 * count
    assert values["omni_probe_underrun_seconds_bucket", "0.05", None] == 0
    assert values["omni_probe_turns_total", None, "unreachable"] == 0


def test_a_turn_past_a_limit_or_without_speech_is_no_success() -> None:
    with Serving(Speaker([wait(0.2), speech(80)], [text("words")], [speech(80)])) as server:
        limits = ("--interval=0.1", "--turns=2", "--max-rtt-ms=100")
        with standing(f"http://{server.authority}", *limits) as probe:
            assert wait_until(lambda: probe.value("omni_probe_success") is not None)
            wait_until(lambda: probe.value("omni_probe_turns_total", outcome="silent") == 1)
            assert probe.process.stderr is not None
            assert "turn 1: first audio after" in probe.process.stderr.readline()
            assert "turn 2: silent" in probe.process.stderr.readline()


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_it_outlives_its_server(scheme: str) -> None:
    with Serving(Speaker([speech(80)])) as server:
        url = f"{scheme}://{server.authority}"
        with standing(url, "--interval=0.1", "--turns=1") as probe:
            wait_until(lambda: probe.value("omni_probe_success") == 1)
            server.__exit__(None, None, None)
            wait_until(lambda: probe.value("omni_probe_success") == 0)
            assert (probe.value("omni_probe_turns_total", outcome="unreachable") or 0) >= 1
            with Serving(Speaker([speech(80)]), port=server.port):
                wait_until(lambda: probe.value("omni_probe_success") == 1)


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_it_ends_at_once_even_while_it_waits_for_an_answer(scheme: str) -> None:
    speaker = Speaker([HANG])
    with (
        Serving(speaker) as server,
        standing(f"{scheme}://{server.authority}", "--interval=60", "--timeout=300") as probe,
    ):
        wait_until(lambda: speaker.spoken)
        assert probe.value("omni_probe_success") is None
        probe.process.send_signal(signal.SIGTERM)
        assert probe.process.wait(20) == 0


@pytest.mark.parametrize("words", [[], ["--interval=1"]])
@pytest.mark.parametrize("library", ["anyio", "websockets"])
def test_without_a_websocket_library_it_says_what_to_install(words: list[str], library: str) -> None:
    script = f"import sys; sys.modules['{library}'] = None; from omniwatch.cli import main; main()"
    command = [sys.executable, "-c", script, "probe", "ws://127.0.0.1:1", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "pip install 'omniwatch[probe]'" in done.stderr
