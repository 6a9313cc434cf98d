"""Which bytes of the kernel's a message became, and when the client had them."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch.tap.arrival import Arrival, Connection, Mark, Pairs, Speech
from omniwatch.tap.inet_diag import FIN_WAIT2, TIME_WAIT, Fault, SocketReport, TcpInfo

ESTABLISHED = 1
RTT_S = 0.1


def answered(
    acked: int,
    given: int,
    *,
    ack_ago_ms: int = 0,
    retrans: int = 0,
    sacked: int = 0,
    dsacks: int = 0,
    room: bool = True,
    state: int = ESTABLISHED,
) -> SocketReport:
    info = TcpInfo(
        retransmits=0,
        sacked=sacked,
        last_ack_recv_ms=ack_ago_ms,
        rtt_us=150_000,
        total_retrans=-(-retrans // 1000),
        bytes_acked=acked,
        notsent_bytes=0,
        min_rtt_us=int(RTT_S * 1e6),
        rwnd_limited_us=0,
        bytes_sent=given + retrans,
        bytes_retrans=retrans,
        dsack_dups=dsacks,
    )
    return SocketReport(state, b"c" * 8, given - acked, room, info, 232)


class Listener:
    """A connection that is spoken to, with 80 ms of speech a message."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.speech = Speech("a", 1)
        self.handed = 0
        self.said = 0

    def say(self, size: int, m: float) -> None:
        self.handed += size
        self.said += 1
        self.connection.marks.append(Mark(self.handed, 80.0 * self.said, self.speech, m))

    def take(self, answer: SocketReport, m: float, *, settled: bool = True) -> list[tuple[float, float]]:
        found = self.connection.take(answer, m, self.handed, settled=settled)
        assert not isinstance(found, Fault), found
        return [(arrival.mark.ms, round(arrival.m, 6)) for arrival in found]


def test_a_message_has_arrived_with_its_last_byte():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    her.say(1000, 1.0)
    assert her.take(answered(1009, 1010), 1.2) == []
    assert her.take(answered(1010, 1010), 1.3) == [(80.0, 1.25)]


def test_the_moment_of_the_acknowledgement_counts_not_of_the_question():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    her.say(1000, 1.0)
    her.take(answered(0, 1000), 1.1)
    assert her.take(answered(1000, 1000, ack_ago_ms=40), 1.2) == [(80.0, 1.11)]


def test_between_two_questions_arrivals_are_spread_over_the_bytes():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    for _ in range(4):
        her.say(1000, 1.0)
    her.take(answered(0, 4000), 1.1)
    assert her.take(answered(4000, 4000), 1.5) == [(80.0, 1.15), (160.0, 1.25), (240.0, 1.35), (320.0, 1.45)]


def test_behind_a_hole_that_was_filled_all_came_at_once():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    for _ in range(3):
        her.say(1000, 1.0)
    her.take(answered(0, 3000), 1.1)
    found = her.take(answered(3000, 3000, retrans=1000), 1.5)
    assert found == [(80.0, 1.45), (160.0, 1.45), (240.0, 1.45)]


def test_a_hole_that_was_there_before_and_was_sent_again_in_time_still_held_up_all():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    for _ in range(3):
        her.say(1000, 1.0)
    her.take(answered(0, 3000, retrans=1000, sacked=2), 1.1)
    found = her.take(answered(3000, 3000, retrans=1000), 1.2)
    assert found == [(80.0, 1.15), (160.0, 1.15), (240.0, 1.15)]


def test_a_lost_acknowledgement_makes_nothing_late():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    her.say(1000, 1.0)
    assert her.take(answered(1000, 1000), 1.2) == [(80.0, 1.15)]
    her.say(1000, 1.25)
    her.take(answered(1000, 2000), 1.3)
    assert her.take(answered(2000, 2000, retrans=1000, dsacks=1), 3.0) == [(160.0, 1.3)]


def lossy(*, again: int = 0, later_m: float = 1.3, sacked: int = 0) -> list[tuple[float, float]]:
    """Say two messages, of which the first one's acknowledgement never comes; return when both arrived."""
    her = Listener()
    her.take(answered(0, 0), 0.9)
    her.say(1000, 1.0)
    her.take(answered(0, 1000), 1.1)
    her.take(answered(0, 1000, retrans=again, sacked=sacked), 1.2)
    her.say(1000, later_m)
    her.take(answered(0, 2000, retrans=again), later_m + 0.01)
    return her.take(answered(2000, 2000, retrans=again), later_m + 0.11)


def test_a_message_whose_acknowledgement_a_later_ones_stood_in_for_came_when_it_was_due():
    assert lossy() == [(80.0, 1.05), (160.0, 1.36)]


def test_what_was_sent_again_meanwhile_came_no_sooner_than_that():
    assert lossy(again=1000) == [(80.0, 1.25), (160.0, 1.36)]


def test_where_nothing_that_was_sent_later_came_through_in_time_the_path_stood_still():
    her = Listener()
    her.take(answered(0, 0), 0.9)
    her.say(1000, 1.0)
    her.take(answered(0, 1000), 1.1)
    her.say(1000, 1.3)
    her.take(answered(0, 2000), 1.31)
    assert her.take(answered(2000, 2000), 1.6) == [(80.0, 1.405), (160.0, 1.55)]


def test_nothing_arrives_before_it_was_handed_on():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    her.say(1000, 9.0)
    assert her.take(answered(1000, 1000), 9.02) == [(80.0, 9.05)]


def test_an_answer_remembered_without_figures_has_everything():
    for state in (TIME_WAIT, FIN_WAIT2):
        her = Listener()
        her.take(answered(0, 0), 0.0)
        her.say(1000, 1.0)
        her.take(answered(0, 1000), 1.1)
        assert her.take(SocketReport(state, b"c" * 8, 0, True, None, 0), 1.3) == [(80.0, 1.25)]


def test_framing_compression_and_other_answers_need_not_be_known():
    """The kernel has a tenth of the bytes, and 300 of another answer between two turns."""
    her = Listener()
    her.take(answered(0, 200), 0.0)
    her.say(10_000, 1.0)
    her.take(answered(200, 1200), 1.1)
    assert [ms for ms, _ in her.take(answered(1200, 1200), 1.3)] == [80.0]
    her.take(answered(1500, 1500), 5.0)
    her.say(10_000, 6.0)
    assert her.take(answered(2499, 2500), 6.2, settled=False) == []
    assert [ms for ms, _ in her.take(answered(2500, 2500), 6.3, settled=False)] == [160.0]


def test_without_a_moment_of_rest_it_goes_by_what_it_has():
    her = Listener()
    her.say(1000, 1.0)
    her.take(answered(0, 1100), 1.0, settled=False)
    assert [ms for ms, _ in her.take(answered(1100, 1100), 1.2, settled=False)] == [80.0]


@pytest.mark.parametrize(
    "lie",
    [
        answered(500, 2000),
        answered(2500, 2000),
    ],
)
def test_counts_that_cannot_be_are_refused_and_change_nothing(lie):
    her = Listener()
    her.take(answered(0, 0), 0.0)
    her.say(1000, 1.0)
    her.say(1000, 1.0)
    assert len(her.take(answered(1000, 2000), 1.2)) == 1
    assert isinstance(her.connection.take(lie, 1.3, 2000, settled=True), Fault)
    assert len(her.take(answered(2000, 2000), 1.4)) == 1


def test_figures_that_were_read_at_different_moments_make_no_pair():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    her.say(1000, 1.0)
    her.take(answered(400, 1000)._replace(queued=1000), 1.1)
    assert her.connection.pairs.newest == 0
    her.take(answered(400, 1000), 1.2)
    assert her.take(answered(1000, 1000), 1.3) == [(80.0, 1.25)]


def test_speech_that_cannot_be_so_small_is_a_lie():
    her = Listener()
    her.take(answered(0, 0), 0.0)
    her.say(100_000, 1.0)
    assert isinstance(her.connection.take(answered(0, 10), 1.2, her.handed, settled=True), Fault)


@given(
    messages=st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 40)), min_size=1, max_size=30),
    percent=st.sampled_from([2, 10, 100, 105]),
)
def test_with_a_pair_at_each_end_no_message_is_early_or_late_by_a_byte(messages, percent):
    pairs = Pairs()
    assert pairs.add(0, 77)
    handed = list(accumulate(size for size, _ in messages))
    given_ = list(accumulate((77, *(size * percent // 100 + more + 1 for size, more in messages))))[1:]
    for ends in zip(handed, given_, strict=True):
        assert pairs.add(*ends)
    for end, expected in zip(handed, given_, strict=True):
        assert pairs.given_at(end) == expected


ACTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 20_000),
        st.floats(0, 1),
        st.floats(0.001, 2),
        st.booleans(),
        st.booleans(),
        st.integers(0, 3000),
    ),
    max_size=40,
)


@given(ACTS)
def test_arrivals_keep_their_order_and_their_bounds(acts):
    """Whatever the path does: each message once, in order, not before it was sent, and when all is acknowledged, all."""
    her, m, given_, acked, retrans, dsacks = Listener(), 1.0, 0, 0, 0, 0
    found: list[Arrival] = []

    def ask(settled: bool, ago_ms: int) -> None:
        answer = answered(acked, given_, ack_ago_ms=ago_ms, retrans=retrans, dsacks=dsacks)
        arrived = her.connection.take(answer, m, her.handed, settled=settled)
        assert not isinstance(arrived, Fault), arrived
        found.extend(arrived)

    for count, size, share, wait_s, lost, settled, ago_ms in acts:
        for _ in range(count):
            her.say(size, m)
            given_ += size + 9
        m += wait_s
        acked += int((given_ - acked) * share)
        retrans += 1000 * lost
        dsacks += lost and settled
        ask(settled, ago_ms)
    acked, m = given_, m + 1
    ask(True, 0)
    assert [arrival.mark.ms for arrival in found] == [80.0 * (n + 1) for n in range(her.said)]
    assert all(earlier.m <= later.m for earlier, later in pairwise(found))
    assert all(arrival.m >= arrival.mark.handed_m + RTT_S / 2 - 1e-9 for arrival in found)
    assert all(arrival.m <= m for arrival in found)
