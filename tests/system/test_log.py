"""Log lines as Prometheus' own programs write them."""

from __future__ import annotations

import io
import json
import logging

import pytest

from omniwatch.system import log


@pytest.fixture
def written():
    out = io.StringIO()
    yield out
    logging.getLogger("omniwatch").handlers.clear()


def test_logfmt(written):
    log.setup("info", "logfmt", written)
    logging.getLogger("omniwatch.x").warning(
        "it is %s", "late", extra={"fields": {"stream": "a b", "n": 3, "q": 'x"y'}}
    )
    line = written.getvalue()
    assert line.count("\n") == 1
    assert line.startswith("ts=20")
    assert line.endswith('Z level=warn msg="it is late" stream="a b" n=3 q="x\\"y"\n')


def test_json(written):
    log.setup("info", "json", written)
    logging.getLogger("omniwatch").info("hello\nworld", extra={"fields": {"n": 3}})
    assert written.getvalue().count("\n") == 1
    assert json.loads(written.getvalue()) | {"ts": ""} == {
        "ts": "",
        "level": "info",
        "msg": "hello\nworld",
        "n": 3,
    }


def test_level(written):
    log.setup("warn", "logfmt", written)
    logging.getLogger("omniwatch").info("quiet")
    assert written.getvalue() == ""


def test_a_kind_of_message_passes_once_a_minute():
    now = [0.0]
    seldom = log.LogThrottle(lambda: now[0])
    assert seldom("a")
    assert not seldom("a")
    assert seldom("b")
    now[0] = 60.0
    assert seldom("a")
