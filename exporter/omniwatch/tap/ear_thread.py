"""The ear's thread: asks the kernel about connections with speech under way, and tells what has arrived."""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from omniwatch.events import Arrived, Event
from omniwatch.system.log import LogThrottle
from omniwatch.tap import inet_diag
from omniwatch.tap.arrival import Arrival, Speech
from omniwatch.tap.inet_diag import Fault, Gone, SocketReport, TcpInfo
from omniwatch.tap.line import Line

logger = logging.getLogger("omniwatch.tap")
POLL_S = 0.1
"""Seconds between two questions about a connection, on average."""
IDLE_S = 1.0
"""Seconds between two questions where nothing was acknowledged for AWAY_S, and between two events without an arrival."""
AWAY_S = 10.0
SETTLED_S = 0.02
"""After so long without a message, the server has written what it was given, if the socket has room."""
NEAR_US = 200
"""A least round trip below this is no network's: a proxy acknowledges for the listener."""
ANSWER_S = 0.1
"""How long an answer may take. The kernel gives it before `send` returns."""
GIVE_UP_S = 1.0
"""Seconds without a good answer about a connection after which what is sent on it counts as heard."""
DOWN_S = 60.0
"""Seconds for which no connection is listened to after the socket for questions failed."""
LEFT_S = 60.0
"""Seconds since the last acknowledgement for which a connection is asked about that the server is done with."""
JUST_S = 0.5
"""A whole answer counts as arrived if its connection, with nothing lost, closed within so many seconds of the last question."""
MAX_NEAR = 256
BATCH = 16
"""Questions asked at once: their answers fit the socket's buffer."""

OpenSocket = Callable[[], socket.socket]


class Heard(NamedTuple):
    """The client reported the turn's speech up to `ms`, the last of it heard `ago_s` ago."""

    speech: Speech
    ms: float
    ago_s: float


class Lost(NamedTuple):
    """A turn goes on by a connection of which the kernel cannot say what arrives."""

    speech: Speech


def open_netlink() -> socket.socket:
    """Open the socket that questions go through. Raises OSError where this family is forbidden."""
    return socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, inet_diag.NETLINK_SOCK_DIAG
    )


class EarThread:
    """Follows the lines and speeches that come through `inbox`; None ends it. Sleeps while there are none."""

    def __init__(
        self,
        put: Callable[[Event], None],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        open_socket: OpenSocket,
    ) -> None:
        self.inbox: queue.SimpleQueue[Line | Speech | Heard | Lost | None] = queue.SimpleQueue()
        self.down_until_m = 0.0
        self.near: dict[bytes, None] = {}
        """Addresses whose round trip is no network's."""
        self.thread = threading.Thread(target=self._run, name="omniwatch-ear", daemon=True)
        self._put = put
        self._clock = clock
        self._monotonic = monotonic
        self._open_socket = open_socket
        self._socket: socket.socket | None = None
        self._number = 0
        self._ill, self._ill_until_m = "", 0.0
        self._lines: dict[Line, None] = {}
        self._held: dict[Speech, None] = {}
        self._seldom = LogThrottle(time.monotonic, every_s=3600.0)

    def _run(self) -> None:
        try:
            self._follow()
        except Exception:
            logger.exception("the ear failed: what arrives is taken to be what is sent")
            self._fail(math.inf)
        finally:
            self._close()

    def _follow(self) -> None:
        while True:
            due_m = self._due_m()
            if due_m is None:
                items = [self.inbox.get()]
            else:
                # The inbox is read between questions: waking for each message would cost more than asking.
                time.sleep(min(max(0.0, due_m - time.monotonic()), POLL_S))
                items = []
            with contextlib.suppress(queue.Empty):
                while True:
                    items.append(self.inbox.get_nowait())
            if None in items:
                return
            now_m = time.monotonic()
            for item in items:
                self._take(item, now_m)
            self._look([line for line in self._lines if line.due_m <= now_m], due_m)

    def _take(self, item: Line | Speech | Heard | Lost | None, now_m: float) -> None:
        if isinstance(item, Line):
            self._lines[item] = None
            item.progress_m = now_m
            item.due_m = (
                now_m if item.looks else max(_next_m(now_m, POLL_S / 2), _next_m(item.asked_m, POLL_S))
            )
        elif isinstance(item, Speech):
            self._held[item] = None
            item.tell_m = now_m + IDLE_S
        elif isinstance(item, Lost):
            self._fall_back(item.speech, now_m)
        elif item and item.ms > item.speech.arrived_ms and not item.speech.is_deaf:
            item.speech.arrived_ms, item.speech.arrived_m = item.ms, now_m - item.ago_s
            self._tell(item.speech, None, now_m)

    def _due_m(self) -> float | None:
        due = [line.due_m for line in self._lines]
        due += [speech.tell_m for speech in self._held]
        return min(due, default=None)

    def _look(self, lines: list[Line], due_m: float | None = None) -> None:
        """Ask about these lines, tell what arrived, and let go of what is over."""
        begun_m = time.monotonic()
        late_s = 0.0 if due_m is None else max(0.0, begun_m - due_m)
        news: dict[Speech, Line | None] = {}
        for line in lines:
            line.due_m = _next_m(begun_m, IDLE_S if begun_m - line.progress_m > AWAY_S else POLL_S)
            if line.latest and line.latest.is_carried:
                line.looks = 0
        asked = [line for line in lines if _is_asked_about(line)]
        for first in range(0, len(asked), BATCH):
            for line, arrival in self._arrivals(asked[first : first + BATCH]):
                speech = arrival.mark.speech
                if arrival.mark.ms > speech.arrived_ms:
                    is_first = not speech.arrived_ms
                    speech.arrived_ms, speech.arrived_m = arrival.mark.ms, arrival.m
                    news[speech] = line
                    if is_first and not speech.is_deaf:
                        # A round trip ends with the first message, whatever came with it.
                        self._tell(speech, news.pop(speech), time.monotonic())
        now_m = time.monotonic()
        for line in lines:
            for speech in _speeches(line):
                speech.paused_s = max(speech.paused_s, late_s)
                speech.tell_m = speech.tell_m or now_m + IDLE_S
                if now_m >= speech.tell_m:
                    news.setdefault(speech, line)
        for speech in self._held:
            if now_m >= speech.tell_m and speech.is_on_its_way:
                news.setdefault(speech, None)
        for speech, by in news.items():
            if not speech.is_deaf:
                self._tell(speech, by, now_m)
        self._let_go(lines, now_m)

    def _arrivals(self, lines: list[Line]) -> Iterator[tuple[Line, Arrival]]:
        """Ask about some lines; yield what has arrived by each since."""
        counts = [(line.handed, line.passed, line.passed_m) for line in lines]
        found = self._ask(lines)
        now_m = time.monotonic()
        for line, (handed, passed, passed_m) in zip(lines, counts, strict=True):
            answer = found.get(line, Fault(self._ill))
            arrivals: Iterable[Arrival] = ()
            if isinstance(answer, SocketReport):
                settled = handed == passed == line.handed and now_m - passed_m >= SETTLED_S
                arrivals = self._heard(line, answer, now_m, handed, settled=settled)
            elif isinstance(answer, Gone):
                arrivals = self._gone(line, now_m)
            else:
                self._fault(line, answer, now_m)
            for arrival in arrivals:
                yield line, arrival

    def _heard(
        self, line: Line, answer: SocketReport, now_m: float, handed: int, *, settled: bool
    ) -> Iterable[Arrival]:
        info, before = answer.info, line.connection.answer
        if line.doubtful and info and 0 < info.min_rtt_us < NEAR_US:
            self._disbelieve(line)
            return ()
        arrivals = line.connection.take(answer, now_m, handed, settled=settled)
        if isinstance(arrivals, Fault):
            self._fault(line, arrivals, now_m)
            return ()
        line.failing_m, line.cookie = None, answer.cookie
        line.looks = 0 if line.connection.pairs.newest == handed else max(0, line.looks - 1)
        if info:
            was = before.info if before else None
            if was is None or info.bytes_acked > was.bytes_acked:
                line.progress_m = now_m
            if was and now_m - line.asked_m < 2 * IDLE_S:
                self._note_trouble(line, was, info)
            if answer.info_bytes < inet_diag.WHOLE_INFO_BYTES and self._seldom("fields"):
                logger.warning(
                    "the kernel gives %d bytes of tcp_info, of %d: some causes of silence stay unknown",
                    answer.info_bytes,
                    inet_diag.WHOLE_INFO_BYTES,
                )
        line.asked_m = now_m
        return arrivals

    def _note_trouble(self, line: Line, was: TcpInfo, info: TcpInfo) -> None:
        retrans = info.total_retrans - was.total_retrans
        window_us = info.rwnd_limited_us - was.rwnd_limited_us
        if retrans > 0 or window_us > 0:
            for speech in _speeches(line):
                speech.retrans += max(0, retrans)
                speech.window_us += max(0, window_us)

    def _gone(self, line: Line, now_m: float) -> Iterable[Arrival]:
        line.is_gone = True
        last = line.connection.answer
        is_sound = last is None or (last.info is not None and not last.info.retransmits)
        if line.is_whole and is_sound and now_m - max(line.asked_m, line.progress_m) < JUST_S:
            return line.connection.closed(now_m)
        return ()

    def _ask(self, lines: list[Line]) -> dict[Line, SocketReport | Gone | Fault]:
        """Ask about some lines at once; return the answers that came. Where one is missing, `_ill` says why."""
        found: dict[Line, SocketReport | Gone | Fault] = {}
        begun_m = time.monotonic()
        if begun_m < self._ill_until_m:
            return found
        asked = {}
        for line in lines:
            self._number = self._number % 0xFFFFFFFF + 1
            asked[self._number] = line
        try:
            if self._socket is None:
                self._socket = self._open_socket()
                self._socket.setblocking(False)
            netlink = self._socket
            questions = (inet_diag.question(line.ends, line.cookie, of) for of, line in asked.items())
            netlink.send(b"".join(questions))
            while asked:
                datagram = _receive(netlink, begun_m + ANSWER_S)
                its_line = asked.pop(inet_diag.number_of(datagram) or 0, None)
                if its_line:
                    found[its_line] = inet_diag.answer(datagram, its_line.ends, its_line.cookie)
        except OSError as error:
            self._close()
            # The other connections' questions would wait as long.
            self._ill_until_m = time.monotonic() + POLL_S / 2
            self._ill = f"INET_DIAG over AF_NETLINK: {error.strerror or error}"
        return found

    def _fault(self, line: Line, fault: Fault, now_m: float) -> None:
        if line.failing_m is None:
            line.failing_m = now_m
        elif now_m - line.failing_m >= GIVE_UP_S:
            if self._seldom("fault"):
                logger.warning("the kernel does not say what arrives: %s; what is sent counts", fault.why)
            if self._socket is None:
                self._fail(now_m + DOWN_S)
            else:
                self._deafen(line, now_m)

    def _fail(self, until_m: float) -> None:
        """Give up every line."""
        self.down_until_m = until_m
        for line in self._lines:
            self._deafen(line, time.monotonic())
        for speech in self._held:
            self._fall_back(speech, time.monotonic())

    def _disbelieve(self, line: Line) -> None:
        if len(self.near) >= MAX_NEAR:
            self.near.clear()
        self.near[line.ends.peer] = None
        if self._seldom("near"):
            logger.info("a client is too near for a network, so what is sent to it counts: a proxy?")
        self._deafen(line, time.monotonic())

    def _deafen(self, line: Line, now_m: float) -> None:
        line.is_deaf = True
        speeches = {mark.speech: None for mark in list(line.connection.marks)}
        if line.latest and (line.latest.is_on_its_way or not line.latest.handed_ms):
            speeches[line.latest] = None
        line.connection.marks.clear()
        for speech in speeches:
            self._fall_back(speech, now_m)

    def _fall_back(self, speech: Speech, now_m: float) -> None:
        if not speech.is_deaf:
            speech.is_deaf = True
            self._tell(speech, None, now_m)

    def _tell(self, speech: Speech, line: Line | None, now_m: float) -> None:
        answer = line.connection.answer if line else None
        info = answer.info if answer else None
        ago_s = now_m - speech.arrived_m if speech.arrived_ms else 0.0
        congestion = answer.congestion if answer else ""
        is_news = bool(congestion) and congestion != speech.congestion
        arrived = Arrived(
            t=self._clock(),
            m=self._monotonic(),
            stream=speech.stream,
            turn=speech.turn,
            ms=round(speech.arrived_ms, 3),
            ago_ms=round(max(0.0, ago_s) * 1000, 1),
            rtt_ms=info.rtt_us / 1000 if info else None,
            least_rtt_ms=round(line.connection.least_rtt_s * 1000, 3) if line and info else None,
            waiting=answer.queued if answer else 0,
            retrans=speech.retrans,
            window_ms=speech.window_us / 1000,
            paused_ms=round(speech.paused_s * 1000, 1),
            congestion=congestion if is_news else None,
            ear="sent" if speech.is_deaf else None,
        )
        speech.congestion = congestion or speech.congestion
        speech.retrans, speech.window_us, speech.paused_s = 0, 0, 0.0
        speech.tell_m = now_m + IDLE_S
        self._put(arrived)

    def _let_go(self, lines: list[Line], now_m: float) -> None:
        for line in lines:
            is_over = line.is_left and (line.is_gone or now_m - line.progress_m > LEFT_S)
            if is_over:
                line.connection.marks.clear()
            if line.is_deaf or is_over or not (line.connection.marks or line.looks):
                line.is_attended = False
                # The event loop may have marked a message since the question before.
                if line.connection.marks and not line.is_deaf and not is_over:
                    line.is_attended = True
                else:
                    del self._lines[line]
        for speech in list(self._held):
            if speech.is_deaf or not (speech.is_held and speech.is_on_its_way):
                speech.is_followed = False
                del self._held[speech]

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _receive(netlink: socket.socket, by_m: float) -> bytes:
    """Return the next datagram. Raises OSError where there is none in time."""
    while True:
        try:
            return netlink.recv(inet_diag.DATAGRAM_BYTES)
        except BlockingIOError:
            left_s = by_m - time.monotonic()
            if left_s <= 0 or not select.select([netlink], [], [], left_s)[0]:
                raise TimeoutError("no answer") from None


def _is_asked_about(line: Line) -> bool:
    return bool(line.looks or line.connection.marks) and not (line.is_gone or line.is_deaf)


def _speeches(line: Line) -> set[Speech]:
    """Return the speeches under way by a line, of several the oldest and the newest."""
    marks = line.connection.marks
    try:
        return {marks[0].speech, marks[-1].speech}
    except IndexError:
        return set()


def _next_m(now_m: float, every_s: float) -> float:
    """Return when to ask again: all connections at the same moments, so that the thread wakes once for all."""
    return round(now_m / POLL_S + every_s / POLL_S) * POLL_S
