"""The static files: asked for again only where they changed, nothing inline, and the words of both languages."""

from __future__ import annotations

import gzip
import re

import pytest

from helpers.events import T0
from helpers.web_calls import call, pages
from omniwatch.core.stream import EARS
from omniwatch.core.totals import RESUME_RESULTS, VANTAGES
from omniwatch.core.verdict import CAUSES
from omniwatch.web import make_app, static_files, words

FILES = sorted(static_files.load())
STRINGS = words.load()
MOST_BYTES = 150_000
"""Of all files of the page, compressed."""
PLACE = re.compile(r"\{[^}]*\}")


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_sent_once_while_it_stays_the_same(path: str) -> None:
    app = make_app(pages())
    first = call(app, path)
    packed = call(app, path, accept_encoding="gzip")
    assert gzip.decompress(packed.body) == first.body
    assert first.headers["Cache-Control"] == "no-cache"
    assert "unsafe" not in first.headers["Content-Security-Policy"]
    again = call(app, path, if_none_match=f'"other", W/{first.headers["ETag"]}')
    assert (again.status, again.body) == (304, b"")
    assert call(app, path, if_none_match='"other"').status == 200


def test_all_that_a_page_loads_is_small() -> None:
    app = make_app(pages())
    loaded = sum(len(call(app, path, accept_encoding="gzip").body) for path in ["/", *FILES])
    assert loaded <= MOST_BYTES, f"{loaded:,} bytes"


def test_other_names_are_no_files() -> None:
    for path in ("/static/", "/static/../__init__.py", "/static/none.js", "/static"):
        assert call(make_app(pages()), path).status == 404


def test_the_page_loads_nothing_inline_and_nothing_from_elsewhere() -> None:
    reply = call(make_app(pages()), "/")
    assert "unsafe" not in reply.headers["Content-Security-Policy"]
    assert not re.search(r"<style|style=|<script>|\son\w+=|https?://", reply.text)
    loaded = re.findall(r'(?:src|href)="(/static/[^"]*)"', reply.text)
    assert loaded
    assert {*loaded} <= {*FILES}


def test_both_languages_have_the_same_strings_with_the_same_places() -> None:
    english, chinese = (STRINGS[language] for language in words.LANGUAGES)
    assert english.keys() == chinese.keys()
    assert not [key for key in english if {*PLACE.findall(english[key])} != {*PLACE.findall(chinese[key])}]
    assert all(english.values())
    assert all(chinese.values())


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_each_word_that_the_feed_may_have_is_there(language: str) -> None:
    needed = {
        *(f"symptom.{symptom}" for symptom in CAUSES),
        *(f"cause.{cause}" for causes in CAUSES.values() for cause in causes),
        *(f"certainty.{word}" for word in ("seen", "mostly", "unknown")),
        *(f"ear.{ear}" for ear in EARS),
        *(f"vantage.{vantage}" for vantage in VANTAGES),
        *(f"result.{result}" for result in RESUME_RESULTS),
        *(f"listener.{word}" for word in ("leaving", "speaking", "waiting", "listening", "away")),
        *(f"rule.{state}" for state in ("pending", "firing")),
    }
    assert needed <= STRINGS[language].keys()


def test_a_state_is_a_sentence_in_both_languages() -> None:
    state = {
        "key": "suffers",
        "level": "suffers",
        "since": T0,
        "arguments": {"slots": [0, 3], "symptom": "starved", "cause": "network"},
    }
    english, chinese = (words.state_line(state, STRINGS[language]) for language in words.LANGUAGES)
    assert re.fullmatch(
        r"A turn is bad since \d\d:\d\d:\d\d: starved, by network\. Listener: 0, 3\.", english
    )
    assert re.fullmatch("自 .* 起有一轮不好：断续，原因：网络。听者：0, 3。", chinese)
    blind = {"key": "blind", "since": None, "arguments": {"source": "tail:/{why}", "why": "{source}"}}
    assert words.state_line(blind, STRINGS["en"]).startswith("The sidecar cannot read tail:/{why}: {source}.")
