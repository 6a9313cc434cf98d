"""Journal files with a flipped bit: what the source gives of one, held against what journalctl finds without JSON."""

from __future__ import annotations

import random
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from helpers.journal_files import UNIT, Log, event, read_all, read_some, readers

ENTRIES = 12
FIELD = b"MESSAGE="
HEADER_SIZE_AT, ENTRY, LIST = 88, 3, 6
"""Of journald's file format (https://systemd.io/JOURNAL_FILE_FORMAT): where the header's size is, two types of objects."""
NUMBERS = {"sequence": 16, "real time": 24, "time of the boot": 32}
"""Where an entry has its numbers."""


class Scene:
    """A journal of a unit and of another one, written once; each play damages a copy."""

    def __init__(self, folder: Path, entries: int = ENTRIES) -> None:
        whole = Log(folder / "whole")
        for number in range(entries):
            # Each of a length of its own: no flipped bit makes one into another.
            whole.append(event(number, number))
            whole.append(b"noise %d" % number, unit="other.service")
        self._whole = whole.file.read_bytes()
        self._used = [at for at, byte in enumerate(self._whole) if byte]
        self.log = Log(folder / "damaged")
        self.log.entries = whole.entries

    def damage(self, *places: tuple[int, int]) -> None:
        """Write the journal anew, these bits of these bytes flipped."""
        content = bytearray(self._whole)
        for at, bits in places:
            content[at] ^= bits
        self.log.file.write_bytes(content)

    def name_of(self, number: int) -> tuple[int, int]:
        """Where an entry's message has its name, and the bit that makes it no field's name: journalctl's "Invalid field."."""
        return self._whole.index(FIELD + event(number, number)), 1 << 5

    def lists(self) -> Iterator[tuple[int, int]]:
        """Yield where each list of entries says where its next part is, and a bit of that."""
        return ((at + 16, 1 << 6) for at in self._objects(LIST))

    def numbers(self, number: int, bits: int) -> Iterator[tuple[int, int]]:
        """Yield where an entry's sequence number and its times are, and bits of their lowest byte."""
        # Every other entry is of the other unit.
        at = list(self._objects(ENTRY))[2 * number]
        return ((at + offset, bits) for offset in NUMBERS.values())

    def _objects(self, kind: int) -> Iterator[int]:
        (at,) = struct.unpack_from("<Q", self._whole, HEADER_SIZE_AT)
        while (size := struct.unpack_from("<Q", self._whole, at + 8)[0]) > 0:
            if self._whole[at] == kind:
                yield at
            at += (size + 7) // 8 * 8

    def play(self, seed: int, counts: Counter[str]) -> str:
        """Flip bits and read; over a restart, where no index is damaged. Returns what is wrong, "" for nothing."""
        luck = random.Random(seed)
        places = [self.name_of(number) for number in luck.sample(range(ENTRIES), luck.choice((0, 0, 1, 3)))]
        if anywhere := not places:
            places = [(luck.choice(self._used), 1 << luck.randrange(8))]
        self.damage(*places)
        there = self.found()
        counts["journals"] += 1
        if there is None:
            counts["not read by journalctl at all"] += 1
            return ""
        try:
            got, damaged = self._read(1 << 20 if anywhere else luck.choice((1, 300)))
        except AssertionError as error:
            return f"seed {seed}, {places}: {error}"
        counts["damaged entries"] += damaged
        counts["entries"] += len(got)
        counts["entries that journalctl finds no more"] += max(0, ENTRIES - len(got) - damaged)
        lost = there - set(got)
        twice = [line for line, count in Counter(got).items() if count > 1]
        if len(lost) > damaged or twice:
            return f"seed {seed}, {places}: lost {sorted(lost)}, twice {twice}, {damaged} counted as damaged"
        return ""

    def _read(self, budget: int) -> tuple[list[bytes], int]:
        """Return the events that a source and, once it was restarted, another one give, and how many damaged entries they count."""
        with readers(self.log) as opened:
            first = opened()
            got = read_all(first) if budget > ENTRIES * 1000 else read_some(first, budget)
            first.close()
            second = opened(first.state())
            got += read_all(second)
        # An older journalctl (249) tells an entry with a damaged hash without its message, as it does one that is too long.
        kinds = ("damaged", "oversize")
        return got, sum(source.invalid.get(kind, 0) for source in (first, second) for kind in kinds)

    def found(self) -> set[bytes] | None:
        """Return the unit's events that one journalctl tells as plain text; None where it says that it cannot."""
        command = [
            "journalctl",
            f"--directory={self.log.directory}",
            f"--unit={UNIT}",
            "--boot",
            "--all",
            "--quiet",
        ]
        done = subprocess.run([*command, "--output=cat"], capture_output=True, check=False)
        if done.returncode:
            return None
        return {line for line in done.stdout.split(b"\n") if line.lstrip().startswith(b"{")}
