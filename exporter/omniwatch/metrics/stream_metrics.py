"""The families of speech: each declared once, with its help, its labels and where its values come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from omniwatch.core.stream import EARS, Stream
from omniwatch.metrics.family import Family, HistogramFamily, LabelledValue
from omniwatch.metrics.snapshot import ScrapeSnapshot, cumulative_s, drift_ms, eta_s, rtt_ms, slope_ppm
from omniwatch.settings.histograms import EXTRA_DELAY_EDGES, INTERRUPTION_EDGES, RTT_EDGES


def _per_stream(
    read: Callable[[Stream, ScrapeSnapshot], float | None],
) -> Callable[[ScrapeSnapshot], Iterator[LabelledValue]]:
    def rows(view: ScrapeSnapshot) -> Iterator[LabelledValue]:
        for stream in view.slotted:
            value = read(stream, view)
            if value is not None:
                yield (str(stream.slot),), value

    return rows


def _counted(name: str, help_text: str, label: str = "") -> Family:
    """Return a counter whose values are the field of the totals that has its name."""
    field = name.removeprefix("omni_")
    if label:
        return Family(
            "counter", name, help_text, (label,), lambda view: _labelled(getattr(view.totals, field))
        )
    return Family("counter", name, help_text, (), lambda view: [((), getattr(view.totals, field))])


def _labelled(counts: Mapping[str, float]) -> Iterator[LabelledValue]:
    return (((value,), count) for value, count in counts.items())


def _rtt_rows(view: ScrapeSnapshot) -> Iterator[LabelledValue]:
    for stream in view.slotted:
        value = rtt_ms(stream, view)
        if value is not None:
            yield (str(stream.slot), stream.answers.vantage), value


def _ear_rows(view: ScrapeSnapshot) -> Iterator[LabelledValue]:
    ears = Counter(stream.ear for stream in view.table.state.streams.values())
    return (((ear,), ears[ear]) for ear in EARS)


def _bad_now_rows(view: ScrapeSnapshot) -> Iterator[LabelledValue]:
    for stream in view.slotted:
        verdict = view.table.turns.so_far(stream, view.at(stream))
        if verdict is not None:
            yield (str(stream.slot), verdict.symptom, verdict.cause), 1


FAMILIES: tuple[Family, ...] = (
    Family(
        "gauge",
        "omni_codec_drift_ms",
        "Audio position minus picture position in milliseconds while it is heard: positive when the voice leads.",
        ("stream",),
        _per_stream(drift_ms),
    ),
    Family(
        "gauge",
        "omni_token_rtt_ms",
        "Text sent until first speech heard in milliseconds, of the last answer; late ones stay only when several stand in a row.",
        ("stream", "vantage"),
        _rtt_rows,
    ),
    Family(
        "gauge",
        "omni_codec_drift_cumulative_seconds",
        "Drift plus every correction made, so that a slope survives realignment.",
        ("stream",),
        _per_stream(cumulative_s),
    ),
    Family(
        "gauge",
        "omni_codec_drift_slope_ppm",
        "Growth of the drift over the last minute (Theil-Sen), in parts per million of time.",
        ("stream",),
        _per_stream(slope_ppm),
    ),
    Family(
        "gauge",
        "omni_codec_drift_eta_seconds",
        "Seconds until the drift reaches the page threshold at its present slope; +Inf when it does not grow.",
        ("stream",),
        _per_stream(eta_s),
    ),
    Family(
        "gauge",
        "omni_stream_silent_seconds",
        "For how long the listener has waited for speech that is due; 0 when none is.",
        ("stream",),
        _per_stream(lambda stream, view: stream.silent_s(view.at(stream))),
    ),
    Family(
        "gauge",
        "omni_streams",
        "Live streams, those without series of their own included.",
        (),
        lambda view: [((), len(view.table.state.streams))],
    ),
    Family(
        "gauge",
        "omni_streams_by_ear",
        "Live streams by how their curves are known: by the client's reports, by the server's kernel, by what was sent.",
        ("ear",),
        _ear_rows,
    ),
    _counted("omni_turns", "Turns by how they ended.", "outcome"),
    Family(
        "counter",
        "omni_turns_bad",
        "Turns that were bad for their listener, by symptom and by the cause that their records show.",
        ("symptom", "cause"),
        lambda view: (
            ((symptom, cause), count)
            for symptom, causes in view.totals.turns_bad.items()
            for cause, count in causes.items()
        ),
    ),
    _counted(
        "omni_turns_judged",
        "Turns that were over and could have been bad: the ground that omni_turns_bad stands on.",
    ),
    Family(
        "gauge",
        "omni_turn_bad_now",
        "1 for the worst symptom so far, and its cause, of a stream's turn that is open or was over seconds ago.",
        ("stream", "symptom", "cause"),
        _bad_now_rows,
    ),
    _counted(
        "omni_turns_odd_length", "Turns whose speech is far longer or shorter than their text can be.", "side"
    ),
    Family(
        "gauge",
        "omni_audio_ahead_seconds",
        "By how much speech handed over ran ahead of its playback at most, over all streams and the last minute or two.",
        (),
        lambda view: [((), view.table.turns.ahead_s(view.now))],
    ),
    _counted("omni_audio_seconds", "Speech handed to the network."),
    _counted(
        "omni_audio_underrun_seconds", "Time in which listeners had nothing to hear in the middle of a turn."
    ),
    _counted("omni_audio_frames", "Codec frames handed to the network."),
    _counted(
        "omni_audio_frames_lost",
        "Codec frames whose id was skipped (those that came late after all are counted as late, too).",
    ),
    _counted("omni_audio_frames_duplicate", "Codec frames that were sent before."),
    _counted("omni_audio_frames_late", "Codec frames that came after their successors."),
    _counted("omni_audio_frames_corrupt", "Codec frames whose checksum or codes cannot be right."),
    _counted("omni_audio_loss_runs", "Runs of at least RTX_THR frames lost in a row."),
    Family(
        "counter",
        "omni_expert_frames",
        "Codec frames each expert took part in, by the bits of expert_mask.",
        ("expert",),
        lambda view: (((str(expert),), n) for expert, n in enumerate(view.totals.expert_frames())),
    ),
    _counted("omni_codec_realign", "Times that audio was forced back onto the picture."),
    _counted("omni_resume_requests", "Clients that came back, by what they were given.", "result"),
    _counted("omni_resume_attempts", "Connections by which clients came back; a return may take several."),
    _counted(
        "omni_resume_strangers",
        "Requests to come back that no client of the server's sent (junk), or not with the key it began with.",
        "reason",
    ),
    _counted("omni_resume_replayed_frames", "Codec frames sent again to clients that came back."),
    _counted("omni_rtx_requests", "Requests for lost frames, by what they were given.", "result"),
    _counted(
        "omni_session_faults", "Errors that the server told clients of realtime sessions, by code.", "code"
    ),
)


def _of_interruptions(what: str, help_text: str) -> HistogramFamily:
    return HistogramFamily(
        f"omni_interruption_{what}_seconds",
        help_text,
        (),
        lambda totals: INTERRUPTION_EDGES,
        lambda totals: [((), getattr(totals, f"interruption_{what}"))],
    )


HISTOGRAMS: tuple[HistogramFamily, ...] = (
    HistogramFamily(
        "omni_codec_drift_abs_seconds",
        "Size of the drift, sampled at each codec frame where it is stated, else at each video frame.",
        (),
        lambda totals: totals.drift_edges,
        lambda totals: [((), totals.codec_drift_abs)],
    ),
    HistogramFamily(
        "omni_turn_drift_worst_seconds",
        "Worst size of the drift in a turn, observed once a turn when its playback is over.",
        (),
        lambda totals: totals.drift_edges,
        lambda totals: [((), totals.turn_drift_worst)],
    ),
    HistogramFamily(
        "omni_token_rtt_seconds",
        "Text until first speech, once a turn, as the client or as the server sees it.",
        ("vantage",),
        lambda totals: RTT_EDGES,
        lambda totals: (((vantage,), histogram) for vantage, histogram in totals.token_rtt.items()),
    ),
    HistogramFamily(
        "omni_resume_extra_delay_seconds",
        "How much later the next unheard frame plays after a cut than it would have without.",
        (),
        lambda totals: EXTRA_DELAY_EDGES,
        lambda totals: [((), totals.resume_extra_delay)],
    ),
    _of_interruptions(
        "stale", "From the user speaking up to the last speech of that turn; 0 if none followed."
    ),
    _of_interruptions("unheard", "Speech sent and not heard yet when the user spoke up."),
    _of_interruptions("answer", "Text until first speech of the next answer, as the server sees it."),
)

CONTRACT_NAMES = {
    "omni_codec_drift_ms": "the users' rules expect this name; omni_codec_drift_abs_seconds is the canonical form",
    "omni_token_rtt_ms": "the users' rules expect this name; omni_token_rtt_seconds is the canonical form",
}
"""Families that `promtool check metrics` objects to, and why they are kept: it wants base units."""
