"""Web configurations broken at random: each is taken or refused in one line, and one that is refused changes nothing."""

from __future__ import annotations

import random
from collections import Counter

from helpers.web_files import TLS, Site, hashed
from omniwatch.web.config import WatchedConfig

SPLINTERS = (
    *(
        "2026-02-30",
        "!!int ''",
        "!!float x",
        "!!timestamp z",
        "!!python/object:os.system x",
        '"\\ud800"',
        "\0",
        "\x85",
    ),
    *(
        "[" * 600,
        "{a: " * 600,
        "&a [*a]",
        "*a",
        "<<: 1",
        "? ",
        ": ",
        "\t",
        "0o9",
        "1e999",
        "9" * 5000,
        "~",
        "\ufeff",
        "---\n",
        "|",
        ">",
    ),
    *("null", "true", "-", "'", '"', "{}", "[]", "\n", "!", "%", "@", "`"),
)


class Scene:
    """A site whose web.yml is broken, again and again, under a reader that watches it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._whole = (
            f"{TLS}\nbasic_auth_users: {{ops: {hashed('secret')}}}\nrate_limit: {{interval: 1s, burst: 3}}\n"
        )
        self._watched = WatchedConfig(site.write(self._whole))

    def play(self, seed: int, counts: Counter[str]) -> str:
        """Break the file in a place or two. Returns what is wrong, "" for nothing."""
        luck = random.Random(seed)
        text = self._whole
        for _ in range(luck.choice((1, 1, 2))):
            at = luck.randrange(len(text) + 1)
            text = text[:at] + luck.choice(SPLINTERS) + text[at + luck.choice((0, 0, 1, 5, 20)) :]
        before = self._watched.current()
        self._site.config.unlink()
        try:
            self._site.write(text)
        except UnicodeEncodeError:
            self._site.config.write_bytes(text.encode(errors="surrogatepass"))
        try:
            after = self._watched.current()
        except Exception as error:
            self._watched = WatchedConfig(self._site.write(self._whole))
            return f"seed {seed}: {type(error).__name__}: {str(error)[:100]!r}"
        said = self._watched.error
        counts["refused" if said else "taken"] += 1
        if said and (
            "\n" in said or len(said) > 2_000 or self._site.config.name not in said or after is not before
        ):
            return f"seed {seed}: {said[:300]!r}"
        return ""
