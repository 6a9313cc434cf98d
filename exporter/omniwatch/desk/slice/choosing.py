"""Choose the experts that stay: the first of each layer's ranking. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from omniwatch.desk.slice import SliceError, keep_file, ranking
from omniwatch.desk.slice.keep_file import Keep, KeptPart, Origin
from omniwatch.desk.slice.scores import Scores
from omniwatch.desk.slice.source import Part

TUNED = 8
"""Numbers of experts that are no multiple of this are advised against: kernels have no tuned settings for them."""


def choose(
    config_sha256: str,
    parts: Mapping[str, Part],
    wanted: Mapping[str, int],
    scores: Mapping[str, Scores],
    *,
    text_only: bool = False,
) -> Keep:
    """Keep so many experts a layer of each part that is wanted. Raises SliceError."""
    kept = {}
    for name, count in wanted.items():
        keep_file.check_count(name, count, parts[name])
        found = scores[name]
        if "speech" not in found.modalities and not text_only:
            heard = ", ".join(found.modalities) or "no token at all"
            raise SliceError(
                f"{name}: scores of {heard}, not of speech: the experts that hear would go first (--text-only keeps by them)"
            )
        layers = {
            str(layer): tuple(sorted(ranking.order(one.scores, one.counts)[:count]))
            for layer, one in sorted(found.layers.items())
        }
        kept[name] = KeptPart(
            experts=parts[name].experts,
            layers=layers,
            scores=Origin(source=found.source, sha256=found.sha256, modalities=found.modalities),
        )
    return Keep(config_sha256=config_sha256, parts=kept)
