"""What is held of a turn and where a client goes on: against a model that keeps everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch import frames
from omniwatch.frames import Kind, add
from omniwatch.resume.encoders import BinaryEncoder, Piece
from omniwatch.resume.turn import Turn


def turn_of(kinds: str, *, first_id: int = 0, cache_win: int = 5, sent: int | None = None) -> Turn:
    """A turn of frames of speech ("s") and of text ("t")."""
    turn = Turn(BinaryEncoder(80), first_id, cache_win)
    for number, kind in enumerate(kinds):
        turn.add(Piece(Kind.SPEECH if kind == "s" else Kind.TEXT, b"%d" % number))
    turn.mark_sent(len(kinds) if sent is None else sent)
    return turn


def numbers(turn: Turn, entry: int) -> list[int]:
    body, _ = turn.batch(entry, 1 << 20)
    return [int(bytes(frame.payload)) for frame in frames.Decoder().feed(body)]


@pytest.mark.parametrize(
    ("last_good_id", "part", "result", "goes_on"),
    [
        (2**32 - 1, 0, "replay", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (0, 0, "replay", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (1, 0, "hit", [3, 4, 5, 6, 7, 8, 9]),
        (3, 0, "hit", [6, 7, 8, 9]),
        (3, 1, "hit", [7, 8, 9]),
        (3, 2, "ahead", None),
        (5, 0, "hit", [9]),
        (5, 1, "hit", []),
        (5, 2, "ahead", None),
        (6, 0, "ahead", None),
        (2**31, 0, "ahead", None),
    ],
)
def test_where_a_client_goes_on(last_good_id: int, part: int, result: str, goes_on: list[int] | None) -> None:
    # Entries 1 2 3 5 7 8 are frames 0 … 5; 4, 6 and 9 are the first parts after frames 2, 3 and 5.
    turn = turn_of("tssststsst", cache_win=4)
    found = turn.find(last_good_id, part)
    assert found.result == result
    if goes_on is not None:
        assert numbers(turn, found.entry) == goes_on


def test_what_was_not_sent_yet_cannot_have_been_heard() -> None:
    turn = turn_of("ssssss", sent=2)
    assert turn.find(1).result == "hit"
    assert turn.find(2).result == "ahead"
    assert turn.sent_id == 1
    assert turn.speech(0, 6) == ("partial", turn.speech(0, 2)[1])
    assert turn.speech(2, 1) == ("miss", [])


def test_a_turn_let_go_of_answers_gone_but_keeps_its_window_and_what_follows_its_oldest_frame() -> None:
    turn = turn_of("ts" + "st" * 10, cache_win=5)
    size = turn.size
    assert turn.shrink(0, turn.end) is False
    assert 0 < turn.size < size
    assert turn.find(4).result == "gone"
    assert numbers(turn, turn.find(5).entry)[0] == 11, "the text after frame 5"
    assert turn.find(add(0, -1)).result == "gone"


def test_text_that_was_sent_is_bounded_though_no_window_is_full() -> None:
    turn = turn_of("s" + "t" * 100, cache_win=75)
    assert turn.shrink(1000, turn.end) is False, "a window that is not full is spared"
    assert turn.shrink(1000, turn.end, spare_window=False) is True
    assert 800 < turn.size <= 1000
    oldest = turn.oldest
    assert turn.find(0, oldest - 2).result == "gone"
    assert numbers(turn, turn.find(0, oldest - 1).entry) == list(range(oldest, 101))
    assert turn.find(0, 100) == ("hit", 101)


def test_nothing_from_the_listeners_place_on_is_let_go() -> None:
    turn = turn_of("s" * 20, sent=3)
    turn.shrink(0, 3)
    assert turn.shrink(0, 3, spare_window=False) is False
    assert numbers(turn, 3) == list(range(3, 20))
    assert turn.unsent == sum(frames.PREFIX.size + len(b"%d" % i) for i in range(3, 20))


def test_what_was_let_go_of_unsent_is_not_counted_again_when_it_is_said_to_be_sent() -> None:
    turn = turn_of("ssss", sent=0, cache_win=1)
    turn.shrink(0, 2)
    unsent = turn.unsent
    turn.mark_sent(1)
    assert turn.unsent == unsent


@given(st.data())
def test_any_history_agrees_with_a_model_that_keeps_everything(data: st.DataObject) -> None:
    first_id = data.draw(st.sampled_from([0, 1, 2**32 - 3, 2**31 - 2]))
    cache_win = data.draw(st.integers(1, 6))
    turn = Turn(BinaryEncoder(80), first_id, cache_win)
    model: list[tuple[int, int]] = []
    held_from, whole = 0, True
    for step in data.draw(st.lists(st.sampled_from(["s", "s", "t", "sent", "shrink", "cut"]), max_size=40)):
        if step in "st":
            speech = step == "s"
            last_id, last_part = model[-1] if model else (add(first_id, -1), 0)
            model.append((add(last_id, 1), 0) if speech else (last_id, last_part + 1))
            turn.add(Piece(Kind.SPEECH if speech else Kind.TEXT, b"%d" % (len(model) - 1)))
        elif step == "sent":
            turn.mark_sent(data.draw(st.integers(turn.sent, len(model))))
        else:
            keep_from = data.draw(st.integers(0, len(model)))
            turn.shrink(0, keep_from, spare_window=step == "shrink")
            newest = model[-1][0] if model else add(first_id, -1)
            window = next(
                (i + 1 for i, place in enumerate(model) if place == (add(newest, -cache_win), 0)), 0
            )
            held_from = max(held_from, min(keep_from, window) if step == "shrink" else keep_from)
            whole = held_from == 0
    held = list(range(held_from, len(model)))
    assert numbers(turn, held_from) == held
    assert turn.unsent == sum(frames.PREFIX.size + len(b"%d" % i) for i in held if i >= turn.sent)
    newest = model[-1][0] if model else add(first_id, -1)
    assert turn.last_id == newest
    for offset in range(-2, len(model) + 2):
        last_good = add(first_id, offset - 1)
        for part in range(4):
            found = turn.find(last_good, part)
            place = (last_good, part)
            known = offset == 0 and part == 0
            if known or place in model:
                entry = 0 if known else model.index(place) + 1
                in_window = frames.distance(last_good, newest) <= cache_win
                if entry > turn.sent and entry >= held_from:
                    assert found.result == "ahead"
                elif in_window and entry >= held_from and entry <= turn.sent:
                    assert found == ("hit", entry)
                elif entry <= turn.sent:
                    assert found == (("replay", 0) if whole else ("gone", 0))
            elif found.result == "hit":
                raise AssertionError(f"{place} is nowhere in the turn")


@given(kinds=st.text("st", max_size=30), first_id=st.sampled_from([0, 7, 2**32 - 2]), data=st.data())
def test_where_speech_ends_among_the_bytes_of_a_batch(kinds: str, first_id: int, data: st.DataObject) -> None:
    turn = turn_of(kinds, first_id=first_id, cache_win=3)
    kept = data.draw(st.integers(0, turn.end))
    turn.shrink(0, kept, spare_window=False)
    index = data.draw(st.integers(kept, turn.end))
    body, stop = turn.batch(index, data.draw(st.integers(1, 200))) if index < turn.end else (b"", index)
    expected, left, frame = [], len(body), kinds[:index].count("s")
    for entry in range(index, stop):
        left -= len(turn.batch(entry, 1)[0])
        if kinds[entry] == "s":
            frame += 1
            expected.append((left, frame))
    assert turn.speech_ends(index, stop) == expected
