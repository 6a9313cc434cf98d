"""The bridge to chat robots at work: against stand-in robots that check its signatures, and its command."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from helpers.fake_robots import SECRET, StandIn, webhook
from helpers.waiting import wait_until
from omniwatch.bundle.bridge import BridgeError, RobotReport, Undelivered, report
from omniwatch.cli import main
from omniwatch.notify.deliveries import Deliveries
from omniwatch.notify.messages import Message
from omniwatch.notify.outbox import Waiting
from omniwatch.notify.sender import NotifyError
from omniwatch.notify.webhook_server import WebhookServer
from omniwatch.settings.receivers import Notify, Robot

SHANGHAI = ZoneInfo("Asia/Shanghai")


@pytest.fixture
def started(tmp_path):
    """Start stand-ins and a bridge to them; call with kinds, or (kind, refuse)."""
    ends: list[Callable[[], None]] = []

    def start(
        *kinds: str | tuple, secret: str = SECRET, **settings: object
    ) -> tuple[WebhookServer, list[StandIn]]:
        stand_ins, told = [], []
        for number, kind in enumerate(kinds):
            stand_in = StandIn(kind) if isinstance(kind, str) else StandIn(*kind)
            ends.append(stand_in.close)
            stand_ins.append(stand_in)
            (tmp_path / f"url{number}").write_text(stand_in.url + "\n")
            (tmp_path / "secret").write_text(secret + "\n")
            told.append(
                Robot(
                    kind=kind if isinstance(kind, str) else kind[0],
                    url_file=str(tmp_path / f"url{number}"),
                    secret_file=str(tmp_path / "secret"),
                )
            )
        bridge = WebhookServer(Notify(listen_address="127.0.0.1:0", robots=told, **settings), SHANGHAI)
        ends.append(bridge.stop)
        return bridge, stand_ins

    yield start
    for end in reversed(ends):
        end()


def call(bridge: WebhookServer, path: str, body: bytes | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{bridge.address}{path}", body, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def counted(bridge: WebhookServer, line: str) -> Callable[[], bool]:
    return lambda: line in call(bridge, "/metrics")[1].splitlines()


def test_each_robot_takes_what_the_bridge_signed(started):
    bridge, stand_ins = started("dingtalk", "feishu", "wecom")
    assert call(bridge, "/page", webhook()) == (200, "OK\n")
    wait_until(lambda: all(stand_in.taken for stand_in in stand_ins))
    ding, fei, wecom = (stand_in.taken[0] for stand_in in stand_ins)
    assert ding["markdown"]["title"] == "[告警] CodecDrift · orin"
    assert fei["card"]["header"]["template"] == "red"
    assert wecom["markdown"]["content"].startswith("### [告警] CodecDrift · orin")
    for name in ("dingtalk-0", "feishu-1", "wecom-2"):
        wait_until(
            counted(bridge, f'omniwatch_notify_attempts_total{{result="delivered",robot="{name}"}} 1.0')
        )


@pytest.mark.slow
def test_a_wrong_signature_is_tried_again_until_the_clock_is_set_or_its_time_is_up(started, caplog):
    bridge, (stand_in,) = started("feishu", secret="another", try_for_s=1.5)
    call(bridge, "/page", webhook())
    wait_until(counted(bridge, 'omniwatch_notify_given_up_total{robot="feishu-0"} 1.0'))
    assert stand_in.attempts == 2
    assert stand_in.taken == []
    assert "not delivered in time" in [record.fields["error"] for record in caplog.records]
    assert "tok" not in caplog.text


@pytest.mark.slow
def test_a_robot_that_is_busy_is_tried_again_until_it_takes_the_message(started):
    busy = {1: (500, {}), 2: (200, {"errcode": 130101, "errmsg": "send too fast"})}
    bridge, (stand_in,) = started(("dingtalk", busy.get))
    call(bridge, "/page", webhook())
    wait_until(lambda: stand_in.taken)
    assert stand_in.attempts == 3
    wait_until(counted(bridge, 'omniwatch_notify_attempts_total{result="later",robot="dingtalk-0"} 2.0'))


def test_a_flood_leaves_as_no_more_than_the_bound(started):
    bridge, (stand_in,) = started("feishu", per_minute=3)
    for number in range(12):
        call(bridge, "/ticket", webhook(alert=f"Alert{number}"))
    wait_until(lambda: len(stand_in.taken) == 3)
    call(bridge, "/ticket", webhook(alert="Last"))
    wait_until(counted(bridge, f'omniwatch_notify_waiting{{robot="feishu-0"}} {13 - told(stand_in)}.0'))
    assert stand_in.attempts == 3


def told(stand_in: StandIn) -> int:
    return sum(f"Alert{n} ·" in json.dumps(stand_in.taken, ensure_ascii=False) for n in range(12))


def test_what_is_no_webhook_and_what_is_nowhere_is_said(started):
    bridge, (stand_in,) = started("wecom")
    assert call(bridge, "/page", b"{}")[0] == 400
    assert call(bridge, "/other", webhook())[0] == 404
    assert call(bridge, "/page")[0] == 405
    assert call(bridge, "/other")[0] == 404
    assert call(bridge, "/-/healthy") == (200, "OK\n")
    assert 'omniwatch_notify_groups_total{code="400"} 1.0' in call(bridge, "/metrics")[1]
    assert stand_in.attempts == 0


def test_a_robot_hears_only_the_severities_it_asks_for(tmp_path):
    stand_in = StandIn("wecom")
    (tmp_path / "url").write_text(stand_in.url)
    robot = Robot(kind="wecom", url_file=str(tmp_path / "url"), severities=["page"])
    bridge = WebhookServer(Notify(listen_address="127.0.0.1:0", robots=[robot]))
    refused = bridge.answer("/ticket", webhook("Ticket"))
    assert refused[::2] == (404, b"no robot takes a ticket\n"), (
        "Alertmanager counts and logs what nobody takes"
    )
    assert bridge.answer("/page", webhook("Page"))[0] == 200
    wait_until(lambda: stand_in.taken)
    bridge.stop()
    stand_in.close()
    assert [body["markdown"]["content"].splitlines()[0] for body in stand_in.taken] == [
        "### [告警] Page · orin"
    ]


@pytest.mark.parametrize(
    ("url", "message"), [(None, "No such file or directory"), ("ftp://x", "holds no address of a robot")]
)
def test_an_address_that_cannot_be_is_said_at_the_start(tmp_path, url, message):
    if url:
        (tmp_path / "url").write_text(url)
    with pytest.raises(NotifyError, match=f"{tmp_path}/url: {message}"):
        WebhookServer(
            Notify(listen_address="127.0.0.1:0", robots=[Robot(kind="wecom", url_file=str(tmp_path / "url"))])
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "Error: notify.robots: names no robot; give --config.file a file that does\n"),
        (
            "notify: {timezone: Mars/Olympus, robots: [{kind: wecom, url_file: /absent}]}",
            'Error: notify.timezone: no time zone "Mars/Olympus" on this device; the package tzdata brings them\n',
        ),
        (
            "notify: {robots: [{kind: wecom, url_file: /absent}]}",
            "Error: /absent: No such file or directory\n",
        ),
        (
            "notify: {timezone: Asia, robots: [{kind: wecom, url_file: /absent}]}",
            'Error: notify.timezone: no time zone "Asia" on this device; the package tzdata brings them\n',
        ),
        *(
            (
                f"notify: {{listen_address: '{address}', robots: [{{kind: wecom, url_file: /absent}}]}}",
                "Error: omniwatch.yaml: notify.listen_address: expected text: HOST:PORT, or :PORT, "
                f"got {json.dumps(address)}\n",
            )
            for address in ("127.0.0.1:99999", "127.0.0.1:²", "127.0.0.1", "::1:9095", "9095", "[::1]")
        ),
    ],
)
def test_the_command_says_in_one_line_what_it_lacks(tmp_path, text, message):
    (tmp_path / "omniwatch.yaml").write_text(text)
    result = CliRunner().invoke(main, ["notify", "--config.file", str(tmp_path / "omniwatch.yaml")])
    assert (result.exit_code, result.stderr) == (2, message)


def reported(bridge: WebhookServer) -> list[RobotReport]:
    return list(report(f"http://{bridge.address}", 5).robots)


def test_what_each_robot_has_taken_is_served(started):
    bridge, _ = started("dingtalk", ("feishu", lambda attempt: (200, {"code": 19024, "msg": "bad"})))
    assert [one.robot for one in reported(bridge)] == ["dingtalk-0", "feishu-1"]
    call(bridge, "/page", webhook())
    wait_until(lambda: all(one.outcomes for one in reported(bridge)))
    taken, refused = reported(bridge)
    assert (taken.failing_s, taken.undelivered) == (None, [])
    assert [(one.result, one.error) for one in taken.outcomes] == [("delivered", "")]
    assert 'alertname="CodecDrift"' in taken.outcomes[0].group
    assert 0 <= taken.outcomes[0].age_s < 20
    assert [(one.result, one.error) for one in refused.outcomes] == [("refused", "19024: bad")]
    assert (refused.severities, refused.error) == (["page", "ticket"], "19024: bad")
    (lost,) = refused.undelivered
    assert "CodecDrift" in lost.title
    assert 0 <= refused.failing_s <= lost.age_s < 20


def test_a_robot_that_takes_messages_again_has_nothing_undelivered(started):
    bridge, _ = started(("wecom", lambda attempt: (502, {}) if attempt == 1 else None))
    call(bridge, "/page", webhook())
    failing = wait_until(lambda: [one for one in reported(bridge) if one.failing_s is not None])
    assert [one.title for one in failing[0].undelivered] != []
    assert failing[0].error == "HTTP 502"
    (well,) = wait_until(lambda: [one for one in reported(bridge) if one.failing_s is None])
    assert well.undelivered == []
    assert [one.result for one in well.outcomes] == ["later", "delivered"]


def test_no_secret_is_served(started):
    """A robot's words may quote its address."""
    bridge, _ = started(
        ("dingtalk", lambda attempt: (200, {"errcode": 1, "errmsg": "no access_token=tok-of-it"}))
    )
    call(bridge, "/page", webhook())
    wait_until(lambda: reported(bridge)[0].outcomes)
    status, body = call(bridge, "/deliveries.json")
    assert status == 200
    assert SECRET not in body
    assert "access_token=tok" not in body


def test_what_was_given_up_is_told_with_why_it_was_not_taken():
    deliveries = Deliveries()
    message = Message("g", "page", True, "title", "words")
    deliveries.note([message], "later", "HTTP 502", 10.0)
    deliveries.note([message], "expired", "not delivered in time", 610.0)
    deliveries.lose([Waiting(9.0, message)])
    found = deliveries.report("wecom-0", ["page"], [], 700.0)
    assert (found.failing_s, found.error) == (690.0, "HTTP 502")
    assert found.undelivered == [Undelivered("title", 691.0)]
    deliveries.note([message], "delivered", "", 701.0)
    assert deliveries.report("wecom-0", ["page"], [Waiting(700.0, message)], 702.0).undelivered == []


def test_a_bridge_that_does_not_say_is_one_line(started):
    with pytest.raises(BridgeError, match=r"^http://127.0.0.1:1: Connection refused$"):
        report("http://127.0.0.1:1", 2)
    bridge, _ = started("wecom")
    with pytest.raises(BridgeError, match="a bridge of an older version"):
        report(f"http://{bridge.address}/elsewhere", 2)
