"""Words that somebody else may have given, as a terminal may show them."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return a server's words on one line, with what a terminal would take for a command escaped."""
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """Return a text with what a terminal would take for a command escaped; line breaks stay."""
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)
