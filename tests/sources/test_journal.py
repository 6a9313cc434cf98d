"""What a journal's entries become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.journal_files import Log, Open, event, read_all, read_until, readers
from helpers.waiting import wait_until
from omniwatch.events import MAX_LINE_BYTES, Invalid, decode
from omniwatch.sources import SourceError
from omniwatch.sources.journal import Journal

pytestmark = pytest.mark.programs


@pytest.fixture
def journal(tmp_path: Path) -> Log:
    return Log(tmp_path / "journal")


@pytest.fixture
def reader(journal: Log) -> Iterator[Open]:
    with readers(journal) as make:
        yield make


def test_history_is_read_and_then_followed(journal: Log, reader: Open) -> None:
    journal.append(event(0), event(1))
    source = reader()
    assert read_all(source) == [event(0), event(1)]
    assert source.up
    assert source.error is None
    journal.append(event(2))
    assert read_until(source, 1) == [event(2)]
    journal.append(event(3), event(4))
    assert read_until(source, 2) == [event(3), event(4)]


def test_it_is_not_caught_up_before_the_end_was_reached(journal: Log, reader: Open) -> None:
    journal.append(*map(event, range(200)))
    source = reader()
    got: list[bytes] = []

    def step() -> bool:
        got.extend(source.read(200).splitlines())
        assert not source.caught_up or len(got) == 200
        return source.caught_up

    wait_until(step)
    assert got == [event(number) for number in range(200)]


def test_only_the_units_own_events_count(journal: Log, reader: Open) -> None:
    journal.append(b"starting up", event(0), b"", b"[1]", b"  " + event(1))
    journal.append(event(9), unit="other.service")
    journal.append_fields([("PRIORITY", b"6")])
    source = reader()
    assert read_all(source) == [event(0), b"  " + event(1)]
    assert source.foreign == 2
    assert source.invalid == {}


def test_a_message_that_is_not_text_comes_as_its_bytes(journal: Log, reader: Open) -> None:
    raw = b'{"ev":"\xff\xfe\x00"}'
    journal.append(raw, event(1), '{"ev":"語音"}'.encode())
    assert read_all(reader()) == [raw, event(1), '{"ev":"語音"}'.encode()]


def test_a_message_of_several_lines_is_split_and_counted(journal: Log, reader: Open) -> None:
    journal.append(event(0) + b"\n" + event(1), b"Traceback\n  " + event(2) + b"\nlast", event(3) + b"\n")
    journal.append(b'{"ev":\n"video"}')
    source = reader()
    assert read_all(source) == [event(0), event(1), b"  " + event(2), event(3), b'{"ev":']
    assert source.multiline == 3
    assert source.foreign == 3
    assert isinstance(decode(b'{"ev":'), Invalid)


def test_a_field_that_an_entry_has_twice_gives_both(journal: Log, reader: Open) -> None:
    journal.append_fields([("MESSAGE", event(0)), ("MESSAGE", b'{"raw":"\xff"}')])
    assert sorted(read_all(reader())) == sorted([event(0), b'{"raw":"\xff"}'])


def test_lines_are_bounded(journal: Log, reader: Open) -> None:
    room = MAX_LINE_BYTES - len(event(0))
    journal.append(event(0), event(1, room), event(2, room + 1), event(3, 2_000_000), event(4))
    journal.append(b"\x01" * 70_000, b"\xff" * 70_000)
    source = reader()
    assert read_all(source) == [event(0), event(1, room), event(4)]
    assert source.invalid == {"oversize": 2}
    assert source.foreign == 2


def test_a_full_line_of_bytes_or_escapes_passes(journal: Log, reader: Open) -> None:
    lines = [b'{"a":"' + byte * (MAX_LINE_BYTES - 8) + b'"}' for byte in (b"\xff", b"\x01")]
    journal.append(*lines)
    assert read_all(reader()) == lines


def test_a_unit_that_has_said_nothing_yet(journal: Log, reader: Open) -> None:
    journal.append(b"hello", unit="other.service")
    source = reader()
    assert read_all(source) == []
    assert source.up
    assert source.state() == {"cursor": ""}
    journal.append(event(0))
    assert read_until(source, 1) == [event(0)]


@pytest.mark.parametrize(
    "record",
    ["nonsense", "[]", '{"__CURSOR":1}', '{"__CURSOR":"c","MESSAGE":[300]}', '{"__CURSOR":"c","MESSAGE":{}}'],
)
def test_output_that_is_not_journalctls_is_counted(tmp_path: Path, reader: Open, record: str) -> None:
    output = tmp_path / "output"
    output.write_text(record + '\n{"__CURSOR":"d","MESSAGE":"{}"}\n')
    source = reader(argv_prefix=("sh", "-c", f"cat {output}; exec sleep 100"))
    assert read_until(source, 1) == [b"{}"]
    assert source.invalid == {"json": 1}


def test_a_message_journalctl_left_out_is_counted(tmp_path: Path, reader: Open) -> None:
    output = tmp_path / "output"
    output.write_text('{"__CURSOR":"c","MESSAGE":null}\n{"__CURSOR":"d","MESSAGE":"{}"}\n')
    source = reader(argv_prefix=("sh", "-c", f"cat {output}; exec sleep 100"))
    assert read_until(source, 1) == [b"{}"]
    assert source.invalid == {"oversize": 1}


def test_a_flood_of_foreign_messages_is_read_in_bounded_steps(journal: Log, reader: Open) -> None:
    journal.append(*[b"noise %d" % number for number in range(500)], event(0))
    source = reader()
    seen: list[int] = []

    def step() -> bool:
        before = source.foreign
        got = source.read(100)
        seen.append(source.foreign - before)
        return got == event(0) + b"\n"

    wait_until(step)
    assert sum(seen) == 500
    assert max(seen) < 10


@pytest.mark.parametrize("unit", ["", "a b", "omni*", "x" * 256, "a\nb", "a/b"])
def test_what_cannot_be_a_unit_is_a_users_error(unit: str) -> None:
    with pytest.raises(SourceError, match="not a unit's name; expected one such as journal:omni"):
        Journal(unit)


def test_a_unit_may_go_without_its_suffix(journal: Log, reader: Open) -> None:
    journal.append(event(0))
    source = reader(unit="omni")
    assert source.name == "journal:omni"
    assert read_all(source) == [event(0)]
