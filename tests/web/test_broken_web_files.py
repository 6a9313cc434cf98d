"""A little of what `make adversary` breaks for long: web configurations under a reader that watches them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from helpers.broken_web_files import Scene
from helpers.web_files import TLS, Site
from omniwatch.web.config import WebConfigError, load

SHARE = 200


def test_files_broken_at_random_are_refused_in_a_line_and_the_old_one_goes_on(tmp_path: Path) -> None:
    scene = Scene(Site(tmp_path))
    seed = random.randrange(1 << 30)
    counts: Counter[str] = Counter()
    assert [wrong for number in range(seed, seed + SHARE) if (wrong := scene.play(number, counts))] == []
    assert counts["refused"] > SHARE / 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TLS.replace("server.key", r'"server\nkey\e[2J"'), "server key [2J: No such file or directory"),
        (TLS.replace("key_file:", r'"key\nfile":'), "tls_server_config.key file: no such setting"),
        (r'"a\nb": 1', "a b: no such setting"),
    ],
)
def test_a_name_with_a_line_break_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(WebConfigError) as refused:
        load(Site(tmp_path).write(text))
    assert str(refused.value).endswith(said)
    assert str(refused.value).isprintable()
