"""Read one unit's output from the systemd journal, through journalctl."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import msgspec

from omniwatch.events import MAX_LINE_BYTES
from omniwatch.sources import SourceError
from omniwatch.sources.furthest import Furthest
from omniwatch.sources.lines import LineBuffer

CHUNK_BYTES = 65536
MAX_RECORD_BYTES = 8 * MAX_LINE_BYTES
"""A record around a line of 64 KiB: journalctl spends up to six bytes on one (an escape)."""
RAW_PER_BUDGET = 8
"""Bytes of records that one `read` goes through at most, as a multiple of its budget: most may be foreign."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Before a journalctl that failed is started again; each failure doubles it."""
STDERR_BYTES = 2048
DAMAGED = re.compile("Invalid field|Bad message")
"""In journalctl's last words where it ends at an entry that is damaged, and goes to no later one."""
CURSOR = re.compile(rb"^__CURSOR=([!-~]+)$", re.MULTILINE)
STEP = ("--output=export", "--output-fields=_TRANSPORT")
"""In this form journalctl tells an entry's cursor before it reads the fields, of which none that a service can set is told."""
UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}")
log = logging.getLogger(__name__)


class Record(msgspec.Struct):
    """What is used of an entry in journalctl's JSON."""

    cursor: str = msgspec.field(name="__CURSOR")
    message: str | list[Any] | None = msgspec.field(name="MESSAGE", default="")

    def texts(self) -> Iterator[bytes]:
        """Give the message's values: one, unless the entry has the field several times, which differ.

        Raises ValueError for what is neither text nor bytes.
        """
        several = isinstance(self.message, list) and not all(isinstance(byte, int) for byte in self.message)
        values = self.message if several and isinstance(self.message, list) else [self.message]
        # A damaged entry may refer to one value twice.
        yield from dict.fromkeys(
            value.encode() if isinstance(value, str) else bytes(value or ()) for value in values
        )


_record = msgspec.json.Decoder(Record)


class Child:
    """A running journalctl: standard output as it comes, and the end of standard error. Raises OSError."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._pipes = [pipe for pipe in (self._process.stdout, self._process.stderr) if pipe]
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._said = b""

    def read(self) -> bytes | None:
        """Return what was written; None when there is nothing now, b"" at the end."""
        self._hear()
        return _read(self._pipes[0])

    def _hear(self) -> None:
        self._said = (self._said + (_read(self._pipes[1]) or b""))[-STDERR_BYTES:]

    def ending(self) -> tuple[bool, str] | None:
        """Return whether it ended well and, if not, why, in one line; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        # It may have said why after the last look, and ended before this one.
        self._hear()
        said = self._said.decode(errors="replace").strip().rpartition("\n")[2]
        how = (
            f"journalctl ended with status {code}"
            if code >= 0
            else f"journalctl was killed by signal {-code}"
        )
        return code == 0, said or how

    def close(self) -> None:
        """End it and wait for that."""
        self._process.terminate()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in self._pipes:
            pipe.close()


def _read(pipe: IO[bytes]) -> bytes | None:
    try:
        return os.read(pipe.fileno(), CHUNK_BYTES)
    except BlockingIOError:
        return None


class Journal:
    """The messages of `unit` that begin with "{", each entry exactly once over restarts, by the cursor of the last.

    Each start first runs journalctl up to the journal's present end, every boot since the cursor included, until nothing more
    is found, and then follows. Without a cursor it begins with the present boot. Where entries behind the cursor were deleted,
    reading goes on with the next there is. Where journalctl ends at a damaged entry, it is run once more to tell that entry's
    cursor: `invalid` counts the entry, and reading goes on behind it. Where damaged numbers lead journalctl back, what was read
    before is left out. What journalctl itself no longer finds is lost without a count. Other messages are no errors; `foreign`
    counts them. An entry of several lines is taken line by line, and `multiline` counts such entries. journald cuts what a
    service prints at its LineMax (48 KiB): a longer line arrives as an invalid one and a foreign one.

    `argv_prefix` is the command with its options, `clock` seconds that never go back. Raises SourceError for what
    cannot be a unit's name; a journalctl that is missing or fails is an `error`, and is tried again.
    """

    def __init__(
        self,
        unit: str,
        argv_prefix: Sequence[str] = ("journalctl",),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not UNIT.fullmatch(unit):
            raise SourceError(f"journal:{unit}: not a unit's name; expected one such as journal:omni.service")
        self.name = f"journal:{unit}"
        self.up = False
        self.error: str | None = "journalctl not started yet"
        self.absent = False
        self.caught_up = False
        self.invalid: dict[str, int] = {}
        self.foreign = 0
        self.multiline = 0
        self.pid: int | None = None
        """The journalctl that runs now."""
        self._argv = [
            *argv_prefix,
            f"--unit={unit}",
            *("--all", "--lines=all", "--quiet", "--no-pager"),
        ]
        self._clock = clock
        self._cursor = ""
        self._furthest = Furthest()
        self._has_gone_back = False
        """Whether this journalctl told entries that were read before."""
        self._is_damaged = False
        """Whether the cursor is a damaged entry's, with which no reading can begin."""
        self._child: Child | None = None
        self._following = self._stepping = False
        self._tail = b""
        """The end of a journalctl's output that is to tell a cursor."""
        self._begun: set[str] = set()
        """The cursors that a journalctl began with since entries were last followed: damaged numbers could lead back to one."""
        self._pause_s, self._retry_at = FIRST_PAUSE_S, clock()
        self._buffer = LineBuffer(MAX_RECORD_BYTES)
        self._records: deque[bytes] = deque()

    def read(self, budget: int) -> bytes:
        """Return the event lines that have come, about `budget` bytes of them."""
        lines: list[bytes] = []
        raw_budget = budget * RAW_PER_BUDGET
        self.caught_up = False
        while budget > 0 and raw_budget > 0 and (self._records or self._fetch()):
            record = self._records.popleft()
            raw_budget -= len(record)
            for line in self._event_lines(record):
                lines.append(line)
                budget -= len(line)
        return b"".join(lines)

    def state(self) -> dict[str, Any]:
        """Return the cursor of the last entry that `read` has dealt with, and how far it has read."""
        furthest = self._furthest.state()
        return {"cursor": self._cursor, **({"furthest": furthest} if furthest else {})}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on behind that entry. To be called before the first `read`."""
        cursor = state.get("cursor")
        self._cursor = cursor if isinstance(cursor, str) else ""
        self._furthest = Furthest(state.get("furthest"))
        self._furthest.passes(self._cursor)
        self._is_damaged = False

    def close(self) -> None:
        """End journalctl."""
        self._let_go("closed")
        self._retry_at = float("inf")

    def _fetch(self) -> bool:
        """Have a record at hand; False when there is none now."""
        while not self._records:
            child = self._child or self._start()
            if child is None:
                return False
            chunk = child.read()
            if chunk is None:
                self.caught_up = self._following
                return False
            if chunk:
                self._take(chunk)
            elif not self._next_child(child):
                return False
        return True

    def _take(self, chunk: bytes) -> None:
        if self._stepping:
            self._tail = (self._tail + chunk)[-CHUNK_BYTES:]
            return
        self.up, self.error = True, None
        if self._following:
            self._pause_s = FIRST_PAUSE_S
            self._begun.clear()
        self._records.extend(self._buffer.cut(chunk).splitlines())
        self._count("oversize", self._buffer.oversize)
        self._buffer.oversize = 0

    def _start(self, *how: str) -> Child | None:
        if self._clock() < self._retry_at:
            return None
        # --after-cursor only then: where the cursor's entry was deleted, it also swallows the first one left (systemd 252).
        # Not --follow at once: it would leave out what earlier boots have behind the cursor.
        behind = "--after-cursor" if self._is_damaged else "--cursor"
        output = how if how == STEP else ("--output=json", "--output-fields=MESSAGE", *how)
        argv = [*self._argv, *output, f"{behind}={self._cursor}" if self._cursor else "--boot"]
        try:
            self._child = Child(argv)
        except OSError as error:
            self._fail(f"{argv[0]}: {error.strerror or error}")
            return None
        self._following, self._stepping, self.pid = "--follow" in how, how == STEP, self._child.pid
        self._tail, self._has_gone_back = b"", False
        self._begun.add(self._cursor)
        return self._child

    def _next_child(self, child: Child) -> bool:
        """Whether reading can go on at once now that a child's output has ended."""
        ending = child.ending()
        if ending is None:
            return False
        well, why = ending
        if not well and DAMAGED.search(why):
            if self._stepping:
                return self._step(why)
            self._let_go(why)
            return self._start(*STEP) is not None
        if self._following or self._stepping or not well:
            self._fail(why)
            return False
        self._let_go(None)
        self.up = True
        # Where an index of the journal is damaged, a search from the last entry found goes further than the first one went.
        return self._start(*(["--follow"] if self._cursor in self._begun else [])) is not None

    def _step(self, why: str) -> bool:
        """Go behind the damaged entry whose cursor was told last; whether there was one."""
        cursor = next(map(bytes.decode, reversed(CURSOR.findall(self._tail))), "")
        is_same = cursor == self._cursor
        if not cursor or (self._is_damaged if is_same else cursor in self._begun):
            self._fail(why)
            return False
        if not is_same and self._furthest.passes(cursor):
            fields = {"source": self.name, "cursor": cursor}
            log.warning("an entry of the journal is damaged and left out", extra={"fields": fields})
            self._count("damaged", 1)
        self._let_go(None)
        self._cursor, self._is_damaged = cursor, True
        return self._start() is not None

    def _fail(self, why: str) -> None:
        self._let_go(why)
        self._retry_at = self._clock() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        if self._cursor and "seek to cursor" in why:
            fields = {"source": self.name, "error": why}
            log.warning("the cursor remembered is of no use, starting over", extra={"fields": fields})
            self._cursor, self._is_damaged = "", False

    def _let_go(self, why: str | None) -> None:
        if self._child:
            self._child.close()
        self._child = self.pid = None
        self._buffer.clear()
        self.up, self.error, self.caught_up = False, why, False

    def _event_lines(self, raw: bytes) -> Iterator[bytes]:
        try:
            record = _record.decode(raw)
            texts = list(record.texts())
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            fields = {"source": self.name, "error": str(error)}
            log.debug("a record is not journalctl's JSON", extra={"fields": fields})
            self._count("json", 1)
            return
        if record.cursor == self._cursor:
            return
        if not self._furthest.passes(record.cursor):
            if not self._has_gone_back:
                fields = {"source": self.name, "cursor": record.cursor}
                log.warning(
                    "the journal went back; entries read before are left out", extra={"fields": fields}
                )
            self._has_gone_back = True
            return
        self._cursor, self._is_damaged = record.cursor, False
        if record.message is None:
            self._count("oversize", 1)
        lines = [line for text in texts for line in text.split(b"\n") if line.strip()]
        self.multiline += len(lines) > 1
        for line in lines:
            if not line.lstrip().startswith(b"{"):
                self.foreign += 1
            elif len(line) > MAX_LINE_BYTES:
                self._count("oversize", 1)
            else:
                yield line + b"\n"

    def _count(self, reason: str, count: int) -> None:
        if count:
            self.invalid[reason] = self.invalid.get(reason, 0) + count
