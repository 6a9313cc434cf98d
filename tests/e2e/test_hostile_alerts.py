"""What alerts say is text in what a real Alertmanager writes: to Slack, and as mail."""

from __future__ import annotations

import email
import email.policy
import json
import socketserver
import subprocess
import threading
from pathlib import Path

import pytest

from e2e.test_routes import Alertmanager, fired
from helpers.bundles import rendered
from helpers.chat_formats import shown
from helpers.fake_robots import StandIn
from helpers.hostile_webhooks import line, texts
from helpers.waiting import wait_until
from omniwatch.desk.child_process import program
from omniwatch.settings import Settings

pytestmark = pytest.mark.programs


class Mail(socketserver.StreamRequestHandler):
    """Takes every message, as RFC 5321 has it."""

    taken: list[bytes]

    def handle(self) -> None:
        self.wfile.write(b"220 stand-in\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                body = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.taken.append(body)
            self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 ok\r\n")


def written(directory: Path, template: str, **annotations: str) -> str:
    """What Alertmanager's own tool makes of a template, for an alert with these annotations."""
    alert = {
        "status": "firing",
        "labels": {"alertname": "CodecDrift", "device": "d" * 30_000},
        "annotations": annotations,
    }
    alert |= {"startsAt": "2026-11-21T09:00:00Z"}
    data = {"status": "firing", "alerts": [alert], "commonLabels": alert["labels"]}
    (directory / "data.json").write_text(json.dumps(data))
    bundle = rendered(directory / "bundle", Settings())
    command = [
        program("amtool"),
        "template",
        "render",
        f"--template.glob={bundle}/deploy/alertmanager/omniwatch.tmpl",
    ]
    asked = [
        f'--template.text={{{{ template "{template}" . }}}}',
        f"--template.data={directory / 'data.json'}",
    ]
    return subprocess.run([*command, *asked], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("of", ["dashboard", "runbook"])
@pytest.mark.parametrize(
    ("address", "links"),
    [
        ("https://wiki.example/CodecDrift.md#now?a=b&c=%20", True),
        ("http://wiki.example", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("//evil.example", False),
        ("https://evil.example/<@all>|Runbook", False),
        ("https://evil.example/a b", False),
        ("https://evil.example/\n\u202ea", False),
        ("https://evil.example/" + "a" * 5000, False),
    ],
)
def test_what_is_no_address_of_the_web_is_linked_nowhere(
    tmp_path: Path, of: str, address: str, links: bool
) -> None:
    """Neither by Slack nor by PagerDuty, which refuses a message with a link that is none."""
    assert written(tmp_path, f"omniwatch.{of}", **{f"{of}_url": address}) == (address if links else "")


@pytest.mark.parametrize("of", ["omniwatch", "omniwatch.slack"])
def test_long_words_make_no_message_too_long(tmp_path: Path, of: str) -> None:
    long = dict.fromkeys(("why", "why_zh", "description", "summary_zh", "runbook", "access"), "<" * 30_000)
    assert len(written(tmp_path, f"{of}.text", **long)) < 20_000
    assert len(written(tmp_path, f"{of}.title", **long)) < 2_000


def test_hostile_words_are_text_in_slack_and_in_mail(tmp_path: Path) -> None:
    taken: list[bytes] = []
    mail = socketserver.ThreadingTCPServer(("127.0.0.1", 0), type("Handler", (Mail,), {"taken": taken}))
    threading.Thread(target=mail.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    slack = StandIn("slack")
    (tmp_path / "slack").write_text(slack.url)
    smarthost = f"mail: {{smarthost: '127.0.0.1:{mail.server_address[1]}', require_tls: false}}"
    page = f"page: {{slack_api_url_file: {tmp_path}/slack, email_to: a@example.org}}"
    hooks = "page_webhook_url: '', ticket_webhook_url: ''"
    alertmanager = Alertmanager(tmp_path, f"receivers: {{{hooks}, {smarthost}, {page}}}")
    try:
        alerts = []
        for number, text in enumerate(texts()):
            alert = fired(f"{number} {text}", "page", device=f"{number} {text}", site=text, cause=text)
            alert["annotations"] = dict.fromkeys(
                ("summary", "summary_zh", "why", "why_zh", "description", "access"), text
            )
            alerts.append(alert)
        alertmanager.post(alerts)
        wait_until(lambda: len(slack.taken) == len(alerts) == len(taken), 60)
    finally:
        alertmanager.stop()
        slack.close()
        mail.shutdown()
        mail.server_close()
    attachments = [body["attachments"][0] for body in slack.taken]
    for attachment in attachments:
        assert attachment["mrkdwn_in"] == ["pretext"]
        assert not attachment.get("link_names")
        for field in ("title", "text", "fallback"):
            found = shown("slack", attachment[field])
            assert (found.calls, found.links, found.formats) == ([], [], []), attachment[field]
    messages = [email.message_from_bytes(body, policy=email.policy.default) for body in taken]
    for number, text in enumerate(texts()):
        told_as = line(text)
        assert sum(told_as in shown("slack", attachment["text"]).words for attachment in attachments) >= 1
        (message,) = [one for one in messages if f" on {number} {told_as}" in str(one["Subject"])]
        (part,) = [one for one in message.walk() if not one.is_multipart()]
        assert part.get_content_type() == "text/plain", "no part of it is HTML"
        told = part.get_content().splitlines()
        assert [one.partition(":")[0] for one in told if one] == ["FIRING", "Device"]
        assert told_as in told[0]
