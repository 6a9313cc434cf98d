"""The rendered heartbeat on a real Alertmanager: a dead man's switch that expects it each interval is never kept waiting."""

from __future__ import annotations

import json
import urllib.request
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path, PurePosixPath

import msgspec

from omniwatch.bundle import render
from omniwatch.desk.demo.local_stack import Pager
from omniwatch.settings import Settings
from omniwatch.system.child_process import ChildProcess, free_port, program

FASTER = {"group_interval: 1m": "group_interval: 1800ms", "repeat_interval: 50s": "repeat_interval: 1500ms"}
"""A minute becomes 1.8 s."""


def test_a_beat_is_sent_each_interval(tmp_path: Path) -> None:
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
        beats = [pager.notices.get(timeout=20).received_t for _ in range(5)]
    finally:
        alertmanager.stop()
        pager.close()
    assert max(later - earlier for earlier, later in pairwise(beats)) < 1.75 * 1.8
