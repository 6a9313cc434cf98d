"""Cut a text into sentences while it comes, so that the first one can be spoken early. Pure."""

from __future__ import annotations

import re

# A run of ends is looked at once, from its beginning: a text of nothing else would take the square of its length.
_END = re.compile(r"(?<![.!?…])[.!?…]+[\"')\]”’]*(?=\s)|[。！？；]+[”’」』）]*|\n+")
_SHORT_FORMS = re.compile(r"(?:^|\s)(?:Mr|Mrs|Ms|Dr|St|Prof|vs|e\.g|i\.e|etc|No|[A-Z])\.$")
LONGEST = 400
"""Characters after which a sentence is cut at a space, for a text without ends."""


class Sentences:
    """Text in pieces of any size, given back by the sentence."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, piece: str) -> list[str]:
        """Return the sentences that the piece completes. A full stop ends one when white space follows it."""
        found: list[str] = []
        for at in range(0, len(piece), LONGEST):
            found += self._feed(piece[at : at + LONGEST])
        return found

    def _feed(self, piece: str) -> list[str]:
        self._rest += piece
        found, start = [], 0
        for end in _END.finditer(self._rest):
            sentence = self._rest[start : end.end()].strip()
            if any(map(str.isalpha, sentence)) and not _SHORT_FORMS.search(sentence):
                found.append(sentence)
                start = end.end()
        self._rest = self._rest[start:]
        while len(self._rest) > LONGEST:
            cut = self._rest.rfind(" ", 1, LONGEST)
            cut = cut if cut > 0 else LONGEST
            found.append(self._rest[:cut].strip())
            self._rest = self._rest[cut:]
        return found

    def end(self) -> list[str]:
        """Return what is left, if it has anything to say."""
        rest, self._rest = self._rest.strip(), ""
        return [rest] if any(map(str.isalnum, rest)) else []
