"""The bridge to chat robots at work: against stand-in robots that check its signatures, and its command."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from helpers.fake_robots import SECRET, StandIn, webhook
from helpers.waiting import wait_until
from omniwatch.cli import main
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
        threading.Thread(target=bridge.serve, daemon=True).start()
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


def test_a_wrong_signature_is_tried_again_until_the_clock_is_set_or_its_time_is_up(started, caplog):
    bridge, (stand_in,) = started("feishu", secret="another", try_for_s=1.5)
    call(bridge, "/page", webhook())
    wait_until(counted(bridge, 'omniwatch_notify_given_up_total{robot="feishu-0"} 1.0'))
    assert stand_in.attempts == 2
    assert stand_in.taken == []
    assert "not delivered in time" in [record.fields["error"] for record in caplog.records]
    assert "tok" not in caplog.text


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
    threading.Thread(target=bridge.serve, daemon=True).start()
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
            'Error: notify.timezone: no time zone "Mars/Olympus" on this device\n',
        ),
        (
            "notify: {robots: [{kind: wecom, url_file: /absent}]}",
            "Error: /absent: No such file or directory\n",
        ),
        (
            "notify: {timezone: Asia, robots: [{kind: wecom, url_file: /absent}]}",
            'Error: notify.timezone: no time zone "Asia" on this device\n',
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
