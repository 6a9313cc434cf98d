"""The rendered heartbeat on a real Alertmanager: a dead man's switch that expects it each interval is never kept waiting."""

from __future__ import annotations

import json
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath

import msgspec

from omniwatch.bundle import render
from omniwatch.desk.child_process import ChildProcess, free_port, program
from omniwatch.desk.demo.local_stack import Pager
from omniwatch.settings import Settings

FASTER = {"group_interval: 1m": "group_interval: 3s", "repeat_interval: 50s": "repeat_interval: 2500ms"}
"""A minute becomes 3 s."""
BEATS = 4


def test_each_interval_of_the_group_sends_a_beat(tmp_path: Path) -> None:
    pager = Pager()
    receivers = msgspec.structs.replace(Settings().receivers, watchdog_webhook_url=pager.url)
    settings = msgspec.structs.replace(Settings(), receivers=receivers)
    text = render.render(settings)[PurePosixPath("deploy/alertmanager/alertmanager.yml")]
    for slow, fast in FASTER.items():
        assert slow in text
        text = text.replace(slow, fast)
    (tmp_path / "alertmanager.yml").write_text(text)
    port = free_port()
    argv = [program("prometheus-alertmanager", "alertmanager"), f"--config.file={tmp_path}/alertmanager.yml"]
    argv += [
        f"--storage.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=debug",
    ]
    alertmanager = ChildProcess("alertmanager", argv, tmp_path, f"http://127.0.0.1:{port}")
    try:
        alertmanager.await_ready("/-/ready")
        ends = (datetime.now(timezone.utc) + timedelta(minutes=5)).isoformat()
        alert = {"labels": {"alertname": "Watchdog", "severity": "none", "device": "orin"}, "endsAt": ends}
        post = urllib.request.Request(
            f"{alertmanager.url}/api/v2/alerts",
            json.dumps([alert]).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(post, timeout=10).close()
        for _ in range(BEATS):
            pager.notices.get(timeout=20)
    finally:
        alertmanager.stop()
        pager.close()
    intervals = (tmp_path / "alertmanager.log").read_text().count("msg=flushing")
    sent = BEATS + pager.notices.qsize()
    assert BEATS <= intervals <= sent + 1, "one may have begun as it was ended"
