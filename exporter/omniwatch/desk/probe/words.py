"""Compare what was heard with what was said, word by word. Pure."""

from __future__ import annotations


def word_error_rate(said: str, heard: str) -> tuple[int, int]:
    """Return the word errors of what was heard and the number of words said: substitutions, deletions, insertions."""
    first, second = words_of(said), words_of(heard)
    row = list(range(len(second) + 1))
    for i, word in enumerate(first, 1):
        above, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (word != other))
    return row[-1], len(first)


def words_of(text: str) -> list[str]:
    """Return the words to compare: lower case, no punctuation; a Chinese character is a word."""
    kept = "".join(c if c.isalnum() or c == "'" else " " for c in text.lower().replace("’", "'"))
    return "".join(f" {c} " if "\u3400" <= c <= "\u9fff" else c for c in kept).split()
