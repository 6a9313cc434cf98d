"""SLICE.md: what was cut from which checkpoint, by which scores, and what it cost. The same cut gives the same bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from omniwatch.desk.slice.keep_file import Keep
from omniwatch.desk.slice.source import Source

NAME = "SLICE.md"
BEGIN = "<!-- compare: written by omniwatch slice compare -->"
END = "<!-- end of compare -->"
NOT_COMPARED = "Not measured yet: `omniwatch slice compare` measures it, and writes it here."


class Written(NamedTuple):
    """A file of the cut checkpoint."""

    name: str
    size: int
    sha256: str


def text(
    source: Source,
    keep: Keep,
    *,
    version: str,
    digest: str,
    keep_sha256: str,
    written: Sequence[Written],
    left_out: Sequence[str],
    hashes: Mapping[str, str],
) -> str:
    """Write the card. `hashes`: the digest of each file of the model, where they were asked for."""
    return "\n".join(
        [
            f"# {source.directory.resolve().name}, with fewer experts",
            "",
            f"Made by `omniwatch slice apply` (omniwatch {version}). The same server loads it: the architecture, the tokenizer and the",
            "number of experts that a token takes are those of the original.",
            "",
            *_table(("part", "experts a layer", "kept", "a token takes", "chosen by"), _parts(source, keep)),
            "",
            f"- original: config, index and headers have the SHA-256 `{digest}`",
            f"- keep.json: SHA-256 `{keep_sha256}`",
            *(f"- left out, as it is about the original: {name}" for name in left_out),
            "",
            "## What it cost",
            "",
            BEGIN,
            NOT_COMPARED,
            END,
            "",
            "## Files written",
            "",
            *_table(("file", "bytes", "SHA-256"), [(w.name, f"{w.size}", f"`{w.sha256}`") for w in written]),
            *(_of_original(hashes) if hashes else ()),
            "",
        ]
    )


def with_comparison(card: str, lines: Sequence[str]) -> str | None:
    """Return a card with what `compare` found; None for a file that is no such card."""
    head, begin, rest = card.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        return None
    return "\n".join([head + BEGIN, *lines, END + tail])


def _parts(source: Source, keep: Keep) -> Iterator[tuple[str, ...]]:
    for name, part in source.parts.items():
        kept = keep.parts.get(name)
        by = "all are kept"
        if kept is not None:
            by = "keep.json alone"
            if kept.scores is not None:
                heard = f" of {', '.join(kept.scores.modalities)}" if kept.scores.modalities else ""
                by = f"{kept.scores.source}{heard}, SHA-256 `{kept.scores.sha256}`"
        yield name, str(part.experts), str(keep.count(name, part.experts)), str(part.chosen), by


def _of_original(hashes: Mapping[str, str]) -> Iterator[str]:
    yield from ("", "## Files of the original", "")
    yield from _table(("file", "SHA-256"), [(name, f"`{digest}`") for name, digest in sorted(hashes.items())])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]] | Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
