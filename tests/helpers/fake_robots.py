"""Stand-in robots of chat groups that check signatures as the vendors' documents say, and an Alertmanager's webhook body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, NamedTuple

SECRET = "SEC-of-the-group"
HOUR_S = 3600


class Endpoint(NamedTuple):
    """Path and query of a robot's address, and its answer to a message that it takes."""

    path: str
    taken: dict[str, Any]


ENDPOINTS = {
    "dingtalk": Endpoint("/robot/send?access_token=tok", {"errcode": 0, "errmsg": "ok"}),
    "feishu": Endpoint("/hook/tok", {"code": 0, "msg": "success"}),
    "slack": Endpoint("/services/tok", {"errcode": 0}),
    "wecom": Endpoint("/send?key=tok", {"errcode": 0, "errmsg": "ok"}),
}
"""By kind of robot; Slack is Alertmanager's own."""


class StandIn:
    """A robot's endpoint. It keeps the messages it takes; `refuse` gives (status, answer) for an attempt, or None."""

    def __init__(self, kind: str, refuse: Callable[[int], tuple[int, dict] | None] = lambda attempt: None):
        self.taken: list[dict[str, Any]] = []
        self.attempts = 0
        robot = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                robot.attempts += 1
                refused = refuse(robot.attempts)
                if refused is None:
                    refused = CHECKS[kind](urllib.parse.urlsplit(self.path), body)
                if refused is None:
                    robot.taken.append(body)
                status, answer = refused or (200, ENDPOINTS[kind].taken)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{ENDPOINTS[kind].path}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def dingtalk(url: urllib.parse.SplitResult, body: dict) -> tuple[int, dict] | None:
    """The query has access_token, timestamp (ms, within an hour) and sign."""
    query = urllib.parse.parse_qs(url.query, strict_parsing=True)
    stamp, sign = query["timestamp"][0], query["sign"][0]
    expected = hmac.new(SECRET.encode(), f"{stamp}\n{SECRET}".encode(), hashlib.sha256).digest()
    if query["access_token"] != ["tok"] or abs(int(stamp) / 1000 - time.time()) > HOUR_S:
        return 200, {"errcode": 310000, "errmsg": "invalid timestamp"}
    if base64.b64decode(sign) != expected:
        return 200, {"errcode": 310000, "errmsg": "sign not match"}
    assert body["msgtype"] == "markdown"
    assert set(body["markdown"]) == {"title", "text"}
    return None


def feishu(url: urllib.parse.SplitResult, body: dict) -> tuple[int, dict] | None:
    """The body has timestamp (s, within an hour) and sign: the key is timestamp, line feed, secret; the text is empty."""
    stamp = body["timestamp"]
    expected = hmac.new(f"{stamp}\n{SECRET}".encode(), digestmod=hashlib.sha256).digest()
    if abs(int(stamp) - time.time()) > HOUR_S or base64.b64decode(body["sign"]) != expected:
        return 200, {"code": 19021, "msg": "sign match fail or timestamp is not within one hour"}
    assert body["msg_type"] == "interactive"
    return None


def wecom(url: urllib.parse.SplitResult, body: dict) -> tuple[int, dict] | None:
    """The key in the query is all; the text has a limit of 4096 bytes."""
    if url.query != "key=tok" or len(body["markdown"]["content"].encode()) > 4096:
        return 200, {"errcode": 40058, "errmsg": "markdown.content exceed max length 4096"}
    return None


def slack(url: urllib.parse.SplitResult, body: dict) -> tuple[int, dict] | None:
    """An incoming webhook: what it takes is an attachment."""
    return None if body["attachments"] else (400, {"error": "no_text"})


CHECKS = {"dingtalk": dingtalk, "feishu": feishu, "wecom": wecom, "slack": slack}


def webhook(alert: str = "CodecDrift", status: str = "firing", count: int = 1, device: str = "orin") -> bytes:
    """What Alertmanager POSTs for a group: alerts that began at 09:00:00 UTC and, resolved, ended 200 s later."""
    alerts = [
        {
            "status": status,
            "labels": {"alertname": alert, "device": device, "stream": str(number), "severity": "page"},
            "annotations": {
                "summary": "Voice and picture are out of sync.",
                "summary_zh": "声音与画面不同步。",
                "description": f"The voice lags the picture by 300 ms on stream {number} of {device}:9842.",
                "runbook_url": f"https://wiki.example/{alert}.md",
                "dashboard_url": f"https://grafana.example/d/omni-streaming?var-stream={number}",
            },
            "startsAt": "2026-11-21T09:00:00.5Z",
            "endsAt": "2026-11-21T09:03:20.5Z" if status == "resolved" else "0001-01-01T00:00:00Z",
            "generatorURL": "http://orin:9090/graph",
            "fingerprint": "0123",
        }
        for number in range(count)
    ]
    return json.dumps(
        {
            "version": "4",
            "groupKey": f'{{}}/{{severity="page"}}:{{alertname="{alert}", device="{device}"}}',
            "truncatedAlerts": 0,
            "status": status,
            "receiver": "page",
            "groupLabels": {"alertname": alert, "device": device},
            "commonLabels": {"alertname": alert, "device": device},
            "commonAnnotations": {},
            "externalURL": "http://orin:9093",
            "alerts": alerts,
        }
    ).encode()
