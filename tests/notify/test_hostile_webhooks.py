"""Webhooks that lie: what is none is refused in a line, and what they say is text in every chat group."""

from __future__ import annotations

import http.client
import json
import random
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.chat_formats import FORMATS, shown
from helpers.fake_robots import StandIn, webhook
from helpers.hostile_webhooks import line, play, refused, texts
from omniwatch.notify import messages, queue_file, robots
from omniwatch.notify.outbox import Outbox
from omniwatch.notify.webhook_server import WebhookServer
from omniwatch.settings.receivers import Notify, Robot

KINDS = sorted(robots.discover())
SHARE = 300
"""Webhooks made up here, from a seed; `make adversary` makes them up for minutes."""


@pytest.fixture
def bridge(tmp_path) -> Iterator[WebhookServer]:
    stand_in = StandIn("wecom")
    (tmp_path / "url").write_text(stand_in.url)
    robot = Robot(kind="wecom", url_file=str(tmp_path / "url"))
    server = WebhookServer(Notify(listen_address="127.0.0.1:0", robots=[robot]))
    yield server
    server.stop()
    stand_in.close()


def ask(bridge: WebhookServer, body: bytes, length: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(bridge.address, timeout=20)
    connection.putrequest("POST", "/page")
    connection.putheader("Content-Length", (length or str(len(body))).encode())
    connection.endheaders(body)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, said


@pytest.mark.slow
@pytest.mark.parametrize("name", refused())
def test_what_is_no_webhook_is_refused_in_a_line(bridge: WebhookServer, name: str) -> None:
    status, said = ask(bridge, refused()[name])
    assert (status, said.count(b"\n")) == (400, 1), said
    assert len(said) < 300
    assert ask(bridge, webhook())[0] == 200


@pytest.mark.parametrize(("length", "status"), [("²", 400), ("-1", 400), ("1e3", 400), ("9" * 20_000, 413)])
def test_a_length_that_is_none_is_refused(bridge: WebhookServer, length: str, status: int) -> None:
    assert ask(bridge, b"", length)[0] == status


@pytest.mark.parametrize("kind", FORMATS)
def test_the_reader_finds_what_the_vendors_examples_have(kind: str) -> None:
    found = shown(kind, FORMATS[kind].documented)
    assert found.links
    assert found.calls or kind == "dingtalk", "DingTalk calls the numbers of another field"
    assert found.formats or kind == "slack"


def said_by(kind: str, body: bytes, mention: list[str]) -> tuple[dict[str, Any], str]:
    robot = robots.of(Robot(kind=kind, url_file="u", mention=mention))
    told = messages.compose(messages.decode(body), "page", "en", None, escape=robot.escape)
    sent = json.loads(robot.request("https://r.example/s", "", told, 0).body)
    return sent, FORMATS[kind].text_of(sent)


def folded(text: str) -> str:
    """Look-alikes as what they stand for."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", texts())
def test_what_a_webhook_says_is_text_in_every_group(kind: str, text: str) -> None:
    group = json.loads(webhook())
    plain_one = said_by(kind, json.dumps(group).encode(), [])[1]
    for alert in group["alerts"]:
        alert["labels"] |= {"alertname": text, "device": text, "site": text, "cause": text}
        alert["annotations"] |= {
            "summary": text,
            "why": text,
            "description": text,
            "access": text.replace("`", ""),
        }
    sent, said = said_by(kind, json.dumps(group).encode(), ["zhang.san"])
    found, usual = shown(kind, said), shown(kind, plain_one)
    assert found.calls == [call for call in [FORMATS[kind].call] if call]
    assert found.links == usual.links
    assert [one for one in found.formats if one != "/at"] == [*usual.formats, "code"]
    if kind == "dingtalk":
        assert sent["at"] == {"atMobiles": ["zhang.san"], "isAtAll": False}
    assert folded(found.words).count(folded(line(text))) >= 5, found.words
    assert "Cf" not in map(unicodedata.category, json.dumps(sent, ensure_ascii=False))
    assert "\n" not in sent.get("markdown", {}).get("title", "")


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "https://a.example/) <at id=all></at> [x](https://evil", "//evil"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_an_address_cannot_leave_its_link(kind: str, address: str) -> None:
    group = json.loads(webhook())
    group["alerts"][0]["annotations"]["runbook_url"] = address
    found = shown(kind, said_by(kind, json.dumps(group).encode(), [])[1])
    assert found.calls == []
    assert all(link.startswith(("https://grafana.example/", "https://a.example/")) for link in found.links)


LONG = ["d" * 30_000, "名" * 30_000, '"' * 30_000, "\\" * 30_000, "_" * 30_000, "<" * 30_000, "\x01" * 30_000]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", LONG, ids=("letters", "signs", "quotes", "backslashes", "lines", "tags", "controls")
)
@pytest.mark.parametrize("where", ["labels", "annotations", "both"])
def test_no_name_or_text_makes_a_message_longer_than_its_robot_takes(
    kind: str, text: str, where: str
) -> None:
    """It would be refused for good, and nobody called."""
    group = json.loads(webhook(count=12))
    for alert in group["alerts"]:
        if where != "annotations":
            alert["labels"] |= dict.fromkeys(("alertname", "device", "site", "cause"), text)
        if where != "labels":
            alert["annotations"] = dict.fromkeys(
                ("summary", "why", "description", "access", "runbook", "dashboard_url"), text
            )
    robot = robots.of(Robot(kind=kind, url_file="u", mention=["13800000000"]))
    told = messages.compose(
        messages.decode(json.dumps(group).encode()), "page", "en", None, escape=robot.escape
    )
    request = robot.request("https://r.example/s", "secret", told, 0)
    sent = json.loads(request.body)
    chat = FORMATS[kind]
    assert len(chat.text_of(sent).encode() if chat.limits_text else request.body) <= chat.limit
    assert "13800000000" in robot.cut(told)


def test_what_waits_is_found_again_whatever_webhooks_said(tmp_path) -> None:
    """The file of what waits is read to a bound: were it longer, a restart would lose every message."""
    group = json.loads(webhook())
    group["alerts"][0]["annotations"]["description"] = group["groupKey"] = "x" * 2_000_000
    (tmp_path / "url").write_text("http://127.0.0.1:9/hook")
    settings = Notify(
        listen_address="127.0.0.1:0",
        robots=[Robot(kind="feishu", url_file=str(tmp_path / "url"))],
        try_for_s=1e6,
    )
    server = WebhookServer(settings, state_dir=tmp_path)
    try:
        for number in range(20):
            group["groupKey"] = f"{number}{group['groupKey']}"
            assert server.answer("/page", json.dumps(group).encode())[0] == 200
    finally:
        server.stop(0)
    assert (tmp_path / queue_file.NAME).stat().st_size < 1e6
    assert len(queue_file.QueueFile(tmp_path, 1e6).pending(f"feishu {tmp_path / 'url'} 0")) == 20


def test_a_robots_own_words_are_kept_to_a_bound() -> None:
    robot = robots.of(Robot(kind="wecom", url_file="u"))
    verdict, words = robot.verdict(200, json.dumps({"errcode": 7, "errmsg": "z" * 60_000}).encode())
    assert (verdict, len(words)) == (robots.Verdict.REFUSED, robots.MAX_WORDS)


@pytest.mark.parametrize("kind", KINDS)
def test_titles_of_merged_messages_are_text(kind: str) -> None:
    robot = robots.of(Robot(kind=kind, url_file="u"))
    box = Outbox(1, 600, "en", lambda told: True, robot.escape)
    for number, text in enumerate(texts()):
        box.put(messages.Message(f"g{number}", "page", True, messages.plain(text), "words"), 0.0)
    found = shown(kind, robot.text(box.take(0.0)[0]))
    assert (found.calls, found.links) == ([], [])


def test_made_up_webhooks_are_refused_or_told_as_text() -> None:
    seed = random.randrange(1 << 30)
    counts: Counter[str] = Counter()
    assert [wrong for number in range(seed, seed + SHARE) if (wrong := play(number, counts))] == []
    assert min(counts["taken"], counts["refused"]) > SHARE / 10
