"""The sidecar's metrics of itself: what it read, what it could not read, how far behind it is."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator

from omniwatch import __version__
from omniwatch.ingest.intake import Intake
from omniwatch.metrics.family import Family, LabelledValue
from omniwatch.metrics.snapshot import ScrapeSnapshot


def _per_source(
    read: Callable[[Intake, ScrapeSnapshot], float],
) -> Callable[[ScrapeSnapshot], Iterator[LabelledValue]]:
    return lambda view: (((intake.name,), read(intake, view)) for intake in view.intakes)


def _per_file_source(name: str) -> Callable[[ScrapeSnapshot], Iterator[LabelledValue]]:
    """Return rows of an attribute that only sources of files have, and that may be None."""
    return lambda view: (
        ((intake.name,), value)
        for intake in view.intakes
        if (value := getattr(intake.source, name, None)) is not None
    )


def _per_source_and(name: str) -> Callable[[ScrapeSnapshot], Iterator[LabelledValue]]:
    return lambda view: (
        ((intake.name, value), count)
        for intake in view.intakes
        for value, count in getattr(intake.counts, name).items()
    )


OWN_FAMILIES: tuple[Family, ...] = (
    Family(
        "gauge",
        "omniwatch_source_up",
        "Whether events can be read from the source.",
        ("source",),
        _per_source(lambda intake, view: float(intake.source.up)),
    ),
    Family(
        "gauge",
        "omniwatch_source_blind",
        "1 while a source that is there, or was since the machine was started, cannot be read.",
        ("source",),
        _per_source(lambda intake, view: float(intake.blind)),
    ),
    Family(
        "gauge",
        "omniwatch_source_lag_seconds",
        "How old the newest event read is, by the wall clock, while there is more to read; 0 once all is read.",
        ("source",),
        _per_source(lambda intake, view: intake.lag_s(view.now)),
    ),
    Family(
        "gauge",
        "omniwatch_source_last_event_timestamp_seconds",
        "Time of the newest event read, on the server's clock; 0 before the first.",
        ("source",),
        _per_source(lambda intake, view: intake.counts.last_t),
    ),
    Family(
        "gauge",
        "omniwatch_source_unread_bytes",
        "What the last look left unread in the source's files.",
        ("source",),
        _per_file_source("bytes_behind"),
    ),
    Family(
        "gauge",
        "omniwatch_source_free_bytes",
        "Room left on the file system that the source's file is written to.",
        ("source",),
        _per_file_source("free_bytes"),
    ),
    Family(
        "counter",
        "omniwatch_source_rotations",
        "Times that another file took the place of the one being read.",
        ("source",),
        _per_file_source("rotations"),
    ),
    Family(
        "counter",
        "omniwatch_source_truncations",
        "Times that the file being read was cut short or written anew.",
        ("source",),
        _per_file_source("truncations"),
    ),
    Family(
        "counter",
        "omniwatch_events",
        "Events read, by kind; kinds of a later contract are `unknown`.",
        ("source", "ev"),
        _per_source_and("events"),
    ),
    Family(
        "counter",
        "omniwatch_events_invalid",
        "Lines that are no event, by reason.",
        ("source", "reason"),
        _per_source_and("invalid"),
    ),
    Family(
        "counter",
        "omniwatch_events_lost",
        "Events that the writers numbered but that never came.",
        ("source",),
        _per_source(lambda intake, view: intake.sequence.lost),
    ),
    Family(
        "counter",
        "omniwatch_events_repeated",
        "Events skipped because their number had been read before.",
        ("source",),
        _per_source(lambda intake, view: intake.sequence.repeated),
    ),
    Family(
        "gauge",
        "omniwatch_streams_without_series",
        "Live streams beyond max_streams: counted, but without series of their own.",
        (),
        lambda view: [((), sum(s.slot < 0 for s in view.table.state.streams.values()))],
    ),
    Family(
        "counter",
        "omniwatch_streams_dropped",
        "Streams forgotten early because far too many were live at once.",
        (),
        lambda view: [((), view.totals.streams_dropped)],
    ),
    Family(
        "counter",
        "omniwatch_answers_unmeasured",
        "Answers whose delay cannot be told, as the wall clock was set between question and answer.",
        (),
        lambda view: [((), view.totals.answers_unmeasured)],
    ),
    Family(
        "gauge",
        "omniwatch_ear_up",
        "Whether the server's kernel last said in time what reaches listeners; absent where it is not asked.",
        (),
        lambda view: [] if view.table.state.ear_up is None else [((), float(view.table.state.ear_up))],
    ),
    Family(
        "counter",
        "omniwatch_checkpoint_errors",
        "Checkpoints that could not be read or written.",
        (),
        lambda view: [((), view.checkpoint_errors)],
    ),
    Family(
        "gauge",
        "omniwatch_config_last_reload_successful",
        "Whether the configuration in use is the one last asked for.",
        (),
        lambda view: [((), float(view.reload_ok))],
    ),
    Family(
        "gauge",
        "omniwatch_config_last_reload_success_timestamp_seconds",
        "When the configuration in use was read.",
        (),
        lambda view: [((), view.reload_t)],
    ),
    Family(
        "gauge",
        "omniwatch_build_info",
        "Always 1; what is running.",
        ("version", "python"),
        lambda view: [((__version__, platform.python_version()), 1)],
    ),
)
