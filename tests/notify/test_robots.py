"""The bridge to chat robots: its messages, its signatures and its bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pytest

from helpers.chat_formats import FORMATS
from helpers.fake_robots import webhook
from omniwatch.bundle import catalogue
from omniwatch.notify import messages, robots
from omniwatch.notify.messages import Message
from omniwatch.notify.outbox import Outbox
from omniwatch.notify.robots import Verdict, dingtalk, feishu
from omniwatch.settings.receivers import Robot

SHANGHAI = ZoneInfo("Asia/Shanghai")
DINGTALK = "r+2we0q01lkZqz38LA5IPNbHN81U1leRf3Au4PSQb6Q="
KINDS = sorted(robots.discover())
FEISHU = "yKzlnG5gJbbUvULgjP0QN/V99n1fNH31XG8Rrvl9pfk="


def composed(body: bytes, language: str = "en", severity: str = "page") -> Message:
    order = catalogue.worst_first(catalogue.load())
    return messages.compose(messages.decode(body), severity, language, SHANGHAI, worst_first=order)


def message(group: str, severity: str = "ticket", text: str = "words") -> Message:
    return Message(group, severity, True, f"title {group}", text)


def outbox(try_for_s: float = 600, fits: Callable[[Message], bool] = lambda told: True) -> Outbox:
    return Outbox(20, try_for_s, "en", fits)


def test_a_firing_message_in_english_has_local_time_and_links():
    told = composed(webhook(count=2))
    assert told.title == "[FIRING] CodecDrift on orin"
    assert told.text.split("\n\n") == [
        "**Voice and picture are out of sync.**",
        "FIRING: CodecDrift: The voice lags the picture by 300 ms on stream 0 of orin:9842.",
        "since 11-21 17:00:00 CST",
        "FIRING: CodecDrift: The voice lags the picture by 300 ms on stream 1 of orin:9842.",
        "since 11-21 17:00:00 CST",
        "[Dashboard](https://grafana.example/d/omni-streaming?var-stream=0) | "
        "[Runbook](https://wiki.example/CodecDrift.md)",
    ]
    assert told.firing


@pytest.mark.parametrize("told_in", ["labels", "annotations"])
def test_the_cause_that_a_runbook_is_read_by_stands_behind_the_name(told_in):
    caused = json.loads(webhook())
    caused["alerts"][0]["labels"]["alertname"] = "ModelServerDown"
    caused["alerts"][0][told_in]["cause"] = "crash-loop"
    told = composed(json.dumps(caused).encode())
    assert told.title == "[FIRING] ModelServerDown on orin"
    assert "\n\nFIRING: ModelServerDown (crash-loop): The voice" in told.text


def test_a_resolved_message_in_chinese_says_how_long_it_lasted():
    told = composed(webhook(status="resolved"), "zh")
    assert told.title == "[恢复] CodecDrift · orin"
    assert "开始于 11-21 17:00:00 CST，持续 3 分 20 秒" in told.text
    assert "[处理手册](https://wiki.example/CodecDrift.md)" in told.text
    assert told.text.startswith("**声音与画面不同步。**\n\n恢复：")
    assert not told.firing


@pytest.mark.parametrize(
    ("language", "first"),
    [("en", "**Voice and picture are out of sync.** Mostly the network."), ("zh", "**声音与画面不同步。** 主要是网络。")],
)  # fmt: skip
def test_the_first_line_says_why_and_another_alert_where_it_says_otherwise(language, first):
    group = json.loads(webhook(count=3))
    whys = [("Mostly the network.", "主要是网络。")] * 2 + [("Mostly a CPU quota.", "主要是 CPU 配额。")]
    for alert, (why, why_zh) in zip(group["alerts"], whys, strict=True):
        alert["annotations"] |= {"why": why, "why_zh": why_zh}
    lines = composed(json.dumps(group).encode(), language).text.splitlines()
    assert lines[0] == first
    said = whys[2][0 if language == "en" else 1]
    assert [line.endswith(f" {said}") for line in lines if "CodecDrift" in line][:3] == [False, False, True]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.6, "1 min"), (200, "3 min 20 s"), (3605, "1 h 5 s"), (90061, "25 h 1 min")]
)  # fmt: skip
def test_durations_have_their_two_largest_parts(seconds, text):
    assert messages.duration(seconds, messages.WORDS["en"]) == text


def test_an_alert_without_summary_and_links_is_told_all_the_same():
    bare = json.loads(webhook())
    bare["alerts"][0]["annotations"] = {"description": "Something is wrong."}
    told = composed(json.dumps(bare).encode(), "zh")
    assert told.text == "告警：CodecDrift：Something is wrong.\n\n开始于 11-21 17:00:00 CST"


@pytest.mark.parametrize(("language", "word"), [("en", "Runbook: "), ("zh", "处理手册：")])
def test_without_an_address_the_message_names_the_command_that_shows_the_runbook(language, word):
    group = json.loads(webhook())
    for alert in group["alerts"]:
        alert["annotations"] = {"summary": "S.", "runbook": "omniwatch runbook CodecDrift"}
    text = composed(json.dumps(group).encode(), language).text
    assert text.endswith(f"\n\n{word}`omniwatch runbook CodecDrift`")
    group["alerts"][0]["annotations"]["runbook_url"] = "https://wiki.example/CodecDrift.md"
    assert "omniwatch runbook" not in composed(json.dumps(group).encode(), language).text


def test_how_to_reach_the_device_is_code_in_which_nothing_calls_anybody():
    group = json.loads(webhook())
    group["alerts"][0]["annotations"]["access"] = "ssh `a` <@all> [x](http://y)"
    assert composed(json.dumps(group).encode()).text.endswith("\n\nDevice: `ssh 'a' ＜@all＞ [x］(http://y)`")


def test_both_languages_have_the_same_words():
    assert set(messages.WORDS["en"]) == set(messages.WORDS["zh"])


def test_a_large_group_is_told_in_part():
    assert composed(webhook(count=25)).text.count("FIRING: ") == messages.MAX_ALERTS
    assert "and 15 more" in composed(webhook(count=25)).text


def test_the_worst_alert_of_a_group_comes_first_and_names_the_message():
    group = json.loads(webhook(count=3))
    for alert, (name, status) in zip(
        group["alerts"],
        [("TokenRTT", "firing"), ("StreamSilent", "resolved"), ("CodecDrift", "firing")],
        strict=True,
    ):
        alert["labels"] |= {"alertname": name, "site": "north"}
        alert |= {"status": status, "endsAt": "2026-11-21T09:03:20.5Z"}
        alert["annotations"]["runbook_url"] = f"https://wiki.example/{name}.md"
    told = composed(json.dumps(group).encode())
    assert told.title == "[FIRING] CodecDrift on orin (north)"
    told_of = re.findall(r"^(\w+: \w+):", told.text, re.MULTILINE)
    assert told_of == ["FIRING: CodecDrift", "FIRING: TokenRTT", "RESOLVED: StreamSilent"]
    assert "CodecDrift.md" in told.text
    assert "TokenRTT.md" not in told.text


def test_people_are_called_by_the_first_message_of_a_group_alone():
    robot = Robot(kind="feishu", url_file="u", mention=["ou_7d8a"])
    again = messages.compose(messages.decode(webhook()), "page", "en", SHANGHAI, first=False)
    assert "ou_7d8a" not in robots.of(robot).request("https://r.example/s", "", again, 0).body.decode()
    box = outbox()
    box.put(message("a", "page"), 0)
    box.put(message("a", "page")._replace(first=False), 1)
    assert box.take(2)[0].first, "the first has not left yet"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", webhook().replace(b"startsAt", b"began")])
def test_what_is_no_webhook_is_refused(body):
    with pytest.raises(ValueError, match=r"\w"):
        messages.decode(body)


def test_signatures_are_those_that_openssl_makes():
    # printf '1700000000000\nSEC' | openssl dgst -sha256 -hmac SEC -binary | base64
    assert dingtalk.sign("SEC", "1700000000000") == DINGTALK
    # printf '' | openssl dgst -sha256 -hmac "$(printf '1700000000\nSEC')" -binary | base64
    assert feishu.sign("SEC", "1700000000") == FEISHU


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_that_fires_calls_people_and_nothing_else_does(kind):
    person = "zhang.san"
    robot = Robot(kind=kind, url_file="u", mention=[person])
    called = robots.of(robot).at.format(person)
    fires, ends = composed(webhook()), composed(webhook(status="resolved"))
    ticket = composed(webhook(), severity="ticket")
    bodies = [
        robots.of(robot).request("https://r.example/s", "", told, 0).body.decode()
        for told in (fires, ends, ticket)
    ]
    assert [called in body for body in bodies] == [True, False, False]
    assert [person in body for body in bodies] == [True, False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_message_is_cut_to_what_the_robot_takes_without_breaking_a_character(kind):
    robot = Robot(kind=kind, url_file="u", mention=["13800000000"])
    told = Message("g", "page", True, "标题", "声音落后" * 10_000)
    body = json.loads(robots.of(robot).request("https://r.example/s", "", told, 0).body)
    text = FORMATS[kind].text_of(body)
    most, size = robots.of(robot).max_bytes, robots.of(robot).size(text)
    assert most - 4 < size <= most
    assert "13800000000" in text
    assert "\N{REPLACEMENT CHARACTER}" not in text


@pytest.mark.parametrize(
    ("kind", "status", "body", "verdict"),
    [
        ("dingtalk", 200, '{"errcode":0,"errmsg":"ok"}', Verdict.DELIVERED),
        ("dingtalk", 200, '{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}', Verdict.LATER),
        ("dingtalk", 200, '{"errcode":310000,"errmsg":"sign not match"}', Verdict.LATER),
        ("dingtalk", 200, '{"errcode":310000,"errmsg":"keywords not in content"}', Verdict.REFUSED),
        ("feishu", 200, '{"StatusCode":0,"StatusMessage":"success"}', Verdict.DELIVERED),
        ("feishu", 200, '{"code":0,"msg":"success"}', Verdict.DELIVERED),
        ("feishu", 200, '{"code":9499,"msg":"too many request"}', Verdict.LATER),
        ("feishu", 200, '{"code":19021,"msg":"sign match fail"}', Verdict.LATER),
        ("feishu", 200, '{"code":19024,"msg":"Key Words Not Found"}', Verdict.REFUSED),
        ("wecom", 200, '{"errcode":45009,"errmsg":"api freq out of limit"}', Verdict.LATER),
        ("wecom", 200, "<html>", Verdict.LATER),
        ("wecom", 200, "[]", Verdict.LATER),
        ("dingtalk", 200, "{}", Verdict.LATER),
        ("wecom", 404, "", Verdict.REFUSED),
        ("wecom", 429, "", Verdict.LATER),
        ("wecom", 502, "", Verdict.LATER),
    ],
)  # fmt: skip
def test_answers_are_understood(kind, status, body, verdict):
    robot = robots.of(Robot(kind=kind, url_file="u"))
    assert robot.verdict(status, body.encode())[0] is verdict


def test_no_more_than_the_bound_leaves_in_any_minute_and_what_overflows_goes_as_one():
    box = outbox()
    for number in range(50):
        box.put(message(f"g{number}"), 0.0)
    sent = []
    while box.wait_s(0.0) == 0:
        told, parts = box.take(0.0)
        box.settled(parts)
        sent.append(told)
    assert len(sent) == 20
    assert sent[-1].title == "31 messages in one, there were too many"
    assert "title g49" in sent[-1].text
    assert len(box) == 0
    box.put(message("late"), 30.0)
    assert box.wait_s(30.0) == 30.0
    assert box.wait_s(60.0) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_overflows_is_told_whole_and_what_does_not_fit_waits(kind):
    robot = Robot(kind=kind, url_file="u", language="en", mention=["13800000000"])
    box = outbox(fits=robots.of(robot).fits)
    size = robots.of(robot).max_bytes // 3
    for number in range(30):
        box.put(
            message(f"g{number:02}.", "page", f"begin{number:02} {'声' * (size // 3)} end{number:02}"), 0.0
        )
    told, now = "", 0.0
    while len(box):
        now += box.wait_s(now) or 0.0
        taken, parts = box.take(now)
        body = json.loads(robots.of(robot).request("https://r.example/s", "", taken, 0).body)
        said = json.dumps(body, ensure_ascii=False)
        assert all(f"end{part.group[1:3]}" in said for part in parts)
        assert robots.CUT.strip() not in said
        told += said
        box.settled(parts)
    assert [told.count(f"begin{number:02}") for number in range(30)] == [1] * 30
    assert "2 messages in one" in told


@pytest.mark.parametrize(
    ("parts", "calls", "colour"),
    [
        ([("page", False), ("ticket", True)], False, "orange"),
        ([("ticket", True), ("page", False)], False, "orange"),
        ([("page", True), ("ticket", False)], True, "red"),
        ([("page", False), ("page", True)], True, "red"),
        ([("ticket", True), ("page", True)], True, "red"),
        ([("page", False), ("ticket", False)], False, "green"),
    ],
)
def test_people_are_called_for_what_was_merged_only_while_a_page_in_it_fires(parts, calls, colour):
    robot = Robot(kind="feishu", url_file="u", mention=["ou_7d8a"])
    told = messages.merge(
        [Message(f"g{number}", *part, "title", "words") for number, part in enumerate(parts)], "en"
    )
    card = json.loads(robots.of(robot).request("https://r.example/s", "", told, 0).body)["card"]
    assert card["header"]["template"] == colour
    assert ("ou_7d8a" in json.dumps(card)) == calls


def test_a_message_that_alone_is_too_long_leaves_all_the_same():
    box = outbox(fits=lambda told: False)
    for number in range(25):
        box.put(message(f"g{number}"), 0.0)
    for _ in range(20):
        _, parts = box.take(0.0)
        assert len(parts) == 1
        box.settled(parts)
    assert (len(box), box.wait_s(0.0)) == (5, 60.0)


def test_a_page_overtakes_tickets_and_news_of_a_group_replace_what_has_not_left():
    box = outbox()
    box.put(message("slow", text="old"), 0)
    box.put(message("drift", "page"), 1)
    box.put(message("slow", text="new"), 2)
    assert len(box) == 2
    first, parts = box.take(3)
    assert first.group == "drift"
    box.settled(parts)
    assert box.take(3)[0].text == "new"


def test_news_that_came_while_a_message_was_under_way_are_not_lost():
    box = outbox()
    box.put(message("slow", text="old"), 0)
    _, parts = box.take(0)
    box.put(message("slow", text="new"), 1)
    box.settled(parts)
    assert box.take(1)[0].text == "new"


def test_pauses_double_up_to_a_minute_and_end_with_a_delivery():
    box = outbox(6000)
    box.put(message("g"), 0)
    now, pauses = 0.0, []
    for _ in range(8):
        _, parts = box.take(now)
        box.failed(now)
        pauses.append(box.wait_s(now))
        now += pauses[-1] or 0.0
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    box.settled(parts)
    box.put(message("h"), now)
    box.take(now)
    box.failed(now)
    assert box.wait_s(now) == 1


def test_what_waits_too_long_is_given_up():
    box = outbox()
    box.put(message("old"), 0)
    box.put(message("new"), 1)
    assert box.expire(599.9) == []
    assert [late.message.group for late in box.expire(600)] == ["old"]
    assert len(box) == 1
    assert outbox().wait_s(0) is None
