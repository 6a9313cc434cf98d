"""Something breaks: who is told, once, in time and of nothing else, by a real Prometheus and a real Alertmanager."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from helpers.systemd_bus import Unit, systemd
from helpers.waiting import wait_until
from omniwatch.desk.child_process import ChildProcess, free_port
from omniwatch.desk.demo import GRACE_S
from omniwatch.desk.demo.local_stack import Notice, Pager, Stack
from omniwatch.settings import Settings

SERVER = Path(__file__).parent / "server.py"
CHAT_SERVER = SERVER.with_name("chat_server.py")
FAULT_AT_S = 12.0
MODEL_SCRAPE_S = 5.0
SCRAPE_TIMEOUT_S = 2.0
BEAT_S = 60.0
LOOKBACK_S = 300.0
"""Prometheus' own: for so long a sample that was the last one still counts."""
TICKET_WAIT_S = 30.0
"""A group of tickets waits for so long for others (deploy/alertmanager)."""
WINDOW_S = 150
"""Of the alerts that count in a window: outlasts a ticket's `for` and the wait of its group, and ends while the test still looks."""
FAILED_S = 60
"""AnswersFailing looks back so far, and holds for as long."""
MANY = 100
"""More late answers than a test has: of the few turns here most are, and RedLineBurn would rightly page for half an hour."""
SILENCE_S = 20.0
"""For so long after the end of an alert nothing else may come."""
SPOOL_KIB = 8192


def short_windows() -> Settings:
    base = Settings()
    return msgspec.structs.replace(
        base,
        sidecar=msgspec.structs.replace(base.sidecar, lost_window_s=WINDOW_S, invalid_window_s=WINDOW_S),
        resumption=msgspec.structs.replace(base.resumption, window_s=WINDOW_S),
        rare=msgspec.structs.replace(base.rare, bad=MANY, long_bad=MANY),
        model_server=msgspec.structs.replace(
            base.model_server, failed_window_s=FAILED_S, failed_slow_window_s=FAILED_S
        ),
    )


class Chain:
    """A device whose model server can be killed, and all that its pager is told."""

    def __init__(self, directory: Path, settings: Settings | None = None) -> None:
        self._model_server = f"127.0.0.1:{free_port()}"
        self.stack = Stack(
            directory,
            settings or short_windows(),
            say=lambda line: None,
            model_server=self._model_server,
            tickets=True,
        )
        self.notices: list[Notice] = []

    def speak(self, scenario: str, *gone_at_s: str) -> ChildProcess:
        """Start the model server; returns when it speaks."""
        server = self.serve(scenario, *gone_at_s)
        wait_until(lambda: self.value("sum(increase(omni_audio_seconds_total[10s])) > 0"), 60, "it speaks")
        self.up()
        return server

    def serve(self, scenario: str, *gone_at_s: str) -> ChildProcess:
        """Start the model server."""
        command = [sys.executable, str(SERVER), self._model_server, str(self.stack.events), scenario]
        return self.stack.run("model-server", [*command, str(FAULT_AT_S), *gone_at_s], self._model_server)

    def serve_chats(self) -> ChildProcess:
        """Start a model server behind the real tap, on a real web server."""
        command = [sys.executable, str(CHAT_SERVER), self._model_server, str(self.stack.events)]
        return self.stack.run("chat-server", command, self._model_server)

    def up(self) -> None:
        wait_until(lambda: self.value('up{job="model_server"} == 1'), 60, "the model server is scraped")

    def value(self, expression: str) -> float | None:
        found = self.stack.query(expression)
        return float(found[0]["value"][1]) if found else None

    def told(self, status: str, alert: str) -> Notice | None:
        """The notice, once it came; all others are kept."""
        while True:
            try:
                self.notices.append(self.stack.pager.notices.get_nowait())
            except queue.Empty:
                break
        return next((n for n in self.notices if (n.status, n.alert) == (status, alert)), None)

    def await_told(self, status: str, alert: str, patience_s: float) -> Notice:
        return wait_until(
            lambda: self.told(status, alert),
            patience_s,
            f"{alert} is {status}; so far {[(n.status, n.alert) for n in self.notices]}",
        )

    def only(self, *alerts: str) -> None:
        """Nobody was told of anything else, and of these once each: that they fire, that they ended."""
        until = time.monotonic() + SILENCE_S
        expected = sorted((alert, status) for alert in alerts for status in ("firing", "resolved"))
        wait_until(lambda: self.told("", "") or time.monotonic() > until, SILENCE_S + 10)
        assert sorted((n.alert, n.status) for n in self.notices) == expected


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    made = Chain(tmp_path)
    with made.stack:
        yield made


def for_s(chain: Chain, alert: str) -> float:
    settings = chain.stack.settings
    return {
        "ModelServerDown": settings.model_server.down_for_s,
        "SidecarBlind": settings.sidecar.down_for_s,
        "StreamSilent": settings.early.silent_for_s,
        "CodecDrift": settings.alerts.drift_for_s,
        "TokenRTT": settings.alerts.rtt_for_s,
        "SidecarImpaired": settings.sidecar.impaired_for_s + TICKET_WAIT_S,
        "ResumeFailing": TICKET_WAIT_S,
        "AnswersFailing": 0.0,
    }[alert]


def in_time(chain: Chain, alert: str, shown_t: float, late_s: float = 0.0) -> None:
    """The notice comes within the rule's wait and the grace of when the trouble could be seen."""
    due_s = for_s(chain, alert) + GRACE_S + late_s
    notice = chain.await_told("firing", alert, due_s + 30)
    assert notice.received_t - shown_t <= due_s


def kill(service: ChildProcess) -> float:
    service.process.send_signal(signal.SIGKILL)
    service.process.wait()
    return time.time()


@pytest.mark.timeout(600)
def test_a_model_server_that_is_killed(chain: Chain) -> None:
    server = chain.speak("steady")
    killed_t = kill(server)
    in_time(chain, "ModelServerDown", killed_t, MODEL_SCRAPE_S)
    server.start()
    chain.await_told("resolved", "ModelServerDown", 30)
    chain.only("ModelServerDown")


def ask(server: ChildProcess) -> int:
    """Ask for speech as a client does; return the status of the answer, heard to its end."""
    body = json.dumps({"model": "m", "stream": True, "messages": []}).encode()
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", body)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.timeout(600)
def test_a_model_server_whose_engine_is_dead(chain: Chain) -> None:
    """It answers every chat 500, and everything else as if it were well."""
    few = chain.stack.settings.model_server.failed_min
    server = chain.serve_chats()
    server.await_ready("/metrics")
    wait_until(
        lambda: chain.value("sum(omni_turns_total) == bool 0"), 30, "they are counted from the first on"
    )
    assert [ask(server) for _ in range(few)] == [200] * few
    wait_until(lambda: chain.value(f'omni_turns_total{{outcome="completed"}} == {few}'), 30, "they were well")
    server.process.send_signal(signal.SIGUSR1)
    assert [ask(server) for _ in range(2 * few)] == [500] * 2 * few
    in_time(chain, "AnswersFailing", time.time())
    assert chain.await_told("firing", "AnswersFailing", 0).labels["cause"] == "turns"
    kill(server)
    server.start()
    server.await_ready("/metrics")
    assert [ask(server) for _ in range(3 * few)] == [200] * 3 * few
    chain.await_told("resolved", "AnswersFailing", 2 * FAILED_S + 30)
    chain.only("AnswersFailing")


@contextmanager
def supervised(directory: Path, settings: Settings) -> Iterator[tuple[Chain, Unit]]:
    """A device that has its model server from systemd, by the bus that its sidecar sees in place of this machine's. Needs root."""
    bus, unit, chain = directory / "bus", Unit(), Chain(directory / "stack", settings)
    with systemd(bus, qwen3_omni=unit), chain.stack:
        sidecar = chain.stack.sidecar
        sidecar.stop()
        elsewhere = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /run/dbus && exec "$@"', str(bus)]
        sidecar.argv[:0] = elsewhere
        sidecar.start()
        wait_until(lambda: chain.value('omni_server_unit_state{state="active"} == 1'), 60, "systemd is asked")
        yield chain, unit


@pytest.mark.timeout(600)
def test_a_model_server_that_ends_over_and_over(tmp_path: Path) -> None:
    base = Settings()
    device = msgspec.structs.replace(base.device, restarts_short_s=20)
    with supervised(tmp_path, msgspec.structs.replace(base, device=device)) as (chain, unit):
        server = chain.serve("idle")
        for again in range(1, device.restarts + 1):
            server.await_ready("/metrics")
            kill(server)
            server.start()
            unit.start_again()
            wait_until(lambda n=again: chain.value(f"omni_server_unit_restarts_total == {n}"), 30)
        in_time(chain, "ModelServerDown", time.time(), -for_s(chain, "ModelServerDown"))
        assert chain.await_told("firing", "ModelServerDown", 0).labels["cause"] == "crash-loop"
        chain.await_told("resolved", "ModelServerDown", 60)
        chain.only("ModelServerDown")


@pytest.mark.timeout(600)
def test_a_model_server_that_loads(tmp_path: Path) -> None:
    """For a while, longer than it may be unreachable: nobody is told. Then for ever."""
    base = Settings()
    patient = msgspec.structs.replace(base.model_server, down_for_s=5, load_s=20)
    with supervised(tmp_path, msgspec.structs.replace(base, model_server=patient)) as (chain, unit):
        loads_long = f"time() - omni_server_unit_start_time_seconds > {2 * patient.down_for_s + 2}"
        server = chain.serve("idle")
        wait_until(lambda: chain.value("device:model_server_last_up:timestamp_seconds"), 90, "it was up")
        for way in ("unready", "closed"):
            kill(server)
            unit.start()
            started_t = time.time()
            server = chain.serve(way)
            if way == "unready":
                wait_until(lambda: chain.value(loads_long), 60, "it loads")
                server.process.send_signal(signal.SIGUSR1)
                chain.up()
        in_time(chain, "ModelServerDown", started_t + patient.load_s, 1 - patient.down_for_s)
        notice = chain.await_told("firing", "ModelServerDown", 0)
        assert notice.labels["cause"] == "loading"
        assert notice.received_t - started_t >= patient.load_s - 1
        server.process.send_signal(signal.SIGUSR1)
        chain.await_told("resolved", "ModelServerDown", 30)
        chain.only("ModelServerDown")


@pytest.mark.timeout(600)
def test_a_sidecar_that_is_killed(chain: Chain) -> None:
    chain.speak("steady")
    killed_t = kill(chain.stack.sidecar)
    in_time(chain, "SidecarBlind", killed_t)
    chain.stack.sidecar.start()
    chain.await_told("resolved", "SidecarBlind", 30)
    chain.only("SidecarBlind")


@pytest.mark.timeout(600)
def test_a_sidecar_that_hangs(chain: Chain) -> None:
    chain.speak("steady")
    chain.stack.sidecar.process.send_signal(signal.SIGSTOP)
    in_time(chain, "SidecarBlind", time.time(), SCRAPE_TIMEOUT_S)
    chain.stack.sidecar.process.send_signal(signal.SIGCONT)
    chain.await_told("resolved", "SidecarBlind", 30)
    chain.only("SidecarBlind")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cause", ["no-tap", "idle-tap"])
def test_a_model_server_without_its_tap(chain: Chain, cause: str) -> None:
    if cause == "idle-tap":
        chain.stack.events.write_bytes(b"")
    chain.serve("untapped")
    wait_until(lambda: chain.value("increase(vllm_omni:audio_duration_s_count[1m]) >= 2"), 60, "it speaks")
    in_time(chain, "SidecarBlind", time.time())
    assert chain.await_told("firing", "SidecarBlind", 0).labels["cause"] == cause
    chain.stack.simulate("--scenario=steady")
    chain.await_told("resolved", "SidecarBlind", 60)
    chain.only("SidecarBlind")


@pytest.mark.timeout(600)
def test_a_stream_that_falls_silent(chain: Chain) -> None:
    chain.speak("stall")
    wait_until(lambda: chain.value("omni_stream_silent_seconds > 5"), 60, "the stream is silent")
    in_time(chain, "StreamSilent", time.time())
    chain.await_told("resolved", "StreamSilent", 60)
    chain.only("StreamSilent")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scenario", "alert", "condition"),
    [
        ("reconnect-jump", "CodecDrift", "abs(omni_codec_drift_ms) > 60"),
        ("late-answers", "TokenRTT", "omni_token_rtt_ms > 800"),
    ],
)
def test_a_curve_over_its_threshold(chain: Chain, scenario: str, alert: str, condition: str) -> None:
    chain.speak(scenario)
    wait_until(lambda: chain.value(condition), 60, "the threshold is crossed")
    in_time(chain, alert, time.time())
    chain.await_told("resolved", alert, 120)
    chain.only(alert)


@pytest.mark.timeout(600)
def test_clients_that_come_back_in_vain(chain: Chain) -> None:
    chain.speak("steady", str(FAULT_AT_S))
    wait_until(lambda: chain.value('omni_resume_requests_total{result="gone"} >= 10'), 60, "they come back")
    in_time(chain, "ResumeFailing", time.time())
    chain.await_told("resolved", "ResumeFailing", 420)
    chain.only("ResumeFailing")


@contextmanager
def small_file_system(directory: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SPOOL_KIB}k", "tmpfs", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def is_just_answering(events: Path) -> bool:
    """Whether an answer has begun and goes on for long enough to be cut off."""
    last = [
        msgspec.json.decode(line)["ev"]
        for line in events.read_bytes().splitlines(keepends=True)[-60:]
        if line.endswith(b"\n")
    ]
    return "turn" in last and last[-1] == "audio"


def fill(path: Path) -> None:
    """Write until there is no room."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                os.write(file.fileno(), b"\0" * 4096)
        except OSError:
            return


@pytest.mark.timeout(600)
def test_an_event_file_without_room(chain: Chain) -> None:
    """Needs root: the file system is a small one of its own."""
    directory = chain.stack.events.parent
    with small_file_system(directory):
        chain.speak("steady")
        wait_until(lambda: is_just_answering(chain.stack.events), 60, "an answer")
        fill(directory / "filler")
        in_time(chain, "SidecarBlind", time.time(), -chain.stack.settings.sidecar.down_for_s)
        wait_until(lambda: chain.value("omni_stream_silent_seconds > 12"), 60, "the stream seems silent")
        (directory / "filler").unlink()
        wait_until(lambda: chain.value("omniwatch_events_lost_total > 0"), 30, "it is counted what was lost")
        in_time(chain, "SidecarImpaired", time.time())
        chain.await_told("resolved", "SidecarBlind", 60)
        chain.await_told("resolved", "SidecarImpaired", 420)
        chain.only("SidecarBlind", "SidecarImpaired")


@contextmanager
def beating(directory: Path) -> Iterator[tuple[Stack, Pager]]:
    """A chain whose heartbeat has been heard, and whoever hears it."""
    heart = Pager()
    base = Settings()
    receivers = msgspec.structs.replace(base.receivers, watchdog_webhook_url=heart.url)
    settings = msgspec.structs.replace(base, receivers=receivers)
    with closing(heart), Stack(directory, settings, say=lambda line: None) as stack:
        heart.notices.get(timeout=BEAT_S + 30)
        yield stack, heart


def beats_until(heart: Pager, since_t: float) -> float:
    """Wait until no beat has come for two and a half beats; return when the last one came."""
    last_t = since_t
    while time.time() - last_t < 2.5 * BEAT_S:
        with suppress(queue.Empty):
            last_t = heart.notices.get(timeout=1).received_t
    return last_t


@pytest.mark.timeout(700)
@pytest.mark.parametrize(("gone", "beats_on_s"), [("alertmanager", 0), ("prometheus", 300)])
def test_what_notifies_dies_and_the_heartbeat_stops(tmp_path: Path, gone: str, beats_on_s: float) -> None:
    """Without Prometheus, Alertmanager goes on beating until it calls the alert over: four of Prometheus' resend delays."""
    with beating(tmp_path / "stack") as (stack, heart):
        killed_t = kill(getattr(stack, gone))
        assert beats_until(heart, killed_t) - killed_t <= beats_on_s + GRACE_S


@pytest.mark.timeout(700)
def test_a_prometheus_without_room_does_not_beat(tmp_path: Path) -> None:
    """It still evaluates, and sees its last samples for five minutes. Needs root: the file system is a small one of its own."""
    tsdb = tmp_path / "stack" / "tsdb"
    tsdb.mkdir(parents=True)
    with small_file_system(tsdb), beating(tsdb.parent) as (stack, heart):
        filled_t = time.time()
        fill(tsdb / "filler")
        assert beats_until(heart, filled_t) - filled_t <= LOOKBACK_S + BEAT_S
        assert stack.prometheus.process.poll() is None
        (tsdb / "filler").unlink()
        heart.notices.get(timeout=BEAT_S + 30)
