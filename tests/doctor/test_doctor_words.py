"""A bundle tells what it is for, whatever users and addresses are called, and its journals do not tell where clients are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omniwatch.doctor import bundle, config, summary
from omniwatch.doctor.device import DeviceAccess
from omniwatch.doctor.pseudonyms import Pseudonyms
from omniwatch.doctor.redact import GONE
from omniwatch.settings import parse

HASH = "$2b$12$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"
METRICS = """
omniwatch_source_up{source="tail:/run/omniwatch/events.jsonl"} 0.0
omniwatch_source_lag_seconds{source="tail:/run/omniwatch/events.jsonl"} 99.0
"""
PEER = "203.0.113.7:51234"
EVENT = json.dumps({"ev": "stream_start", "t": 1.0, "stream": "s", "peer": PEER, "kind": "chat"})
ACCESS = f'INFO:     {PEER} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def device_of(
    tmp_path: Path, settings: str = "{}", web: str = "{}", says: str = "It is blind."
) -> DeviceAccess:
    """A device whose sidecar is blind, and says so everywhere."""
    (tmp_path / "omniwatch.yaml").write_text(settings)
    (tmp_path / "web.yml").write_text(web)
    (tmp_path / "events.jsonl").write_text(f"{EVENT}\n")
    labels = {"alertname": "SidecarBlind", "cause": "unreadable", "severity": "page", "device": "orin"}
    alert = {"labels": labels, "annotations": {"description": says}, "state": "firing", "activeAt": "T"}

    def run(command: list[str]) -> str:
        if command[0] == "journalctl":
            return json.dumps({"SYSLOG_IDENTIFIER": "vllm", "_PID": "7", "MESSAGE": ACCESS}) + "\n"
        return "ActiveState=failed\nResult=signal\nExecMainStatus=9\n"

    def fetch(url: str) -> str:
        if url.endswith(":9842/metrics"):
            return METRICS
        return json.dumps({"data": {"alerts": [alert]}}) if url.endswith("/alerts") else "{}"

    return DeviceAccess(
        parse("sources: ['tail:/events.jsonl']"),
        root=tmp_path,
        config=tmp_path / "omniwatch.yaml",
        web_config=tmp_path / "web.yml",
        run=run,
        fetch=fetch,
    )


def undelivered(told: str) -> str:
    """Leave out who is told of pages, which the settings decide."""
    return "\n".join(line for line in told.splitlines() if not line.startswith("- delivery: "))


def wrong(evidence: bundle.Evidence) -> str:
    """Return what the summary says is wrong."""
    page = summary.write(evidence, "orin", 0.0)
    return page.partition("## What is wrong\n\n")[2].partition("\n\n##")[0]


PLAIN = ["prometheus", "omniwatch", "service", "alerts"]
ODD = ["ActiveState", "firing", "omniwatch_source_up", "SidecarBlind", "data"]
BLIND = "**SidecarBlind** fires (page) cause unreadable device orin since T: It is blind."


@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_what_is_wrong_is_seen_whatever_a_user_is_called(tmp_path, name):
    plain = bundle.gather(device_of(tmp_path))
    found = bundle.gather(device_of(tmp_path, web=json.dumps({"basic_auth_users": {name: HASH}})))
    assert list(found.files) == list(plain.files)
    assert wrong(found) == wrong(plain).replace(name, GONE if name in ODD else name)
    assert BLIND.replace(name, GONE if name in ODD else name) in wrong(found)
    assert "tail:/run/omniwatch/events.jsonl cannot be read" in wrong(found)
    assert "omniwatch.service has failed: signal, exit status 9" in wrong(found)


@pytest.mark.parametrize(
    "settings",
    [
        "receivers: {watchdog_webhook_url: 'https://hc.example/hook/omniwatch'}",
        "receivers: {page_webhook_url: 'https://hc.example/alertmanager/9f8e7d6c5b?severity=page'}",
        "receivers: {mail: {username: omniwatch}}",
    ],
)
def test_words_of_an_address_or_a_mailbox_are_not_taken_out_of_everything(tmp_path, settings):
    plain = bundle.gather(device_of(tmp_path))
    found = bundle.gather(device_of(tmp_path, settings))
    assert undelivered(wrong(found)) == undelivered(wrong(plain))
    own = {"config/omniwatch.yaml": "", "system/clock.txt": "", "system/disk.txt": "", "status.json": ""}
    assert {**found.files, **own} == {**plain.files, **own}


def test_the_name_of_whoever_asks_is_no_secret_where_it_is_a_word_of_the_bundle(tmp_path):
    found = config.secrets(DeviceAccess(environment={"USER": "root", "USERNAME": "alice", "API_KEY": "root"}))
    assert found == ["alice", "root"]
    assert config.secrets(DeviceAccess(environment={"USER": "root"})) == []


def test_what_is_said_of_a_page_that_was_looked_at_whole_is_redacted(tmp_path):
    says = "Blind\nsince http://me:pass4711word@wiki.example/x, token=abcdef99, of two  words."
    web = json.dumps({"http_server_config": {"headers": {"X-Frame-Options": "two  words"}}})
    found = bundle.gather(device_of(tmp_path, web=web, says=says))
    told = wrong(found)
    assert f"Blind since http://{GONE}@wiki.example/x, token={GONE}, of {GONE}." in told
    assert "pass4711word" not in told


def test_a_client_is_called_the_same_in_the_events_and_in_the_servers_journal(tmp_path):
    files = bundle.gather(device_of(tmp_path)).files
    assert '"peer":"client-1"' in files["events/0-events.jsonl"]
    line = files["journal/qwen3-omni.service.log"]
    assert line.endswith(': INFO:     client-1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n')
    assert not [name for name, text in files.items() if "203.0.113" in text and "omniwatch." not in name]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("203.0.113.7:51234 - x", "client-1 - x"),
        ("from 203.0.113.7:5, then 203.0.113.8:5.", "from client-1, then client-2."),
        ("\x1b[1m203.0.113.7:5\x1b[0m and \x1b[32m2001:db8::7:5\x1b[0m", "\x1b[1mclient-2\x1b[0m and \x1b[32mclient-1\x1b[0m"),
        ("2001:db8::7:51234 - x [2001:db8::7]:51234", "client-1 - x client-1"),
        ("2001:db8:0:1:2:3:4:5:443 fe80::1%eth0:9 ::ffff:203.0.113.7:5", "client-1 client-2 client-3"),
        ("peername=('203.0.113.7', 5) ('2001:db8::7', 5, 0, 0)", "peername=client-1 client-2"),
        ('{\\"client\\": \\"203.0.113.7:5\\"}', '{\\"client\\": \\"client-1\\"}'),
        ("127.0.0.1:8091 0.0.0.0:8091 [::1]:80 [::]:80 ::1:80 ::ffff:127.0.0.1:5", None),
        ("2025-11-21T08:00:00.000000Z <3> vllm[9]: 12:34:56 std::vec:12 at c10::addmm:7", None),
        ("cublas 12.4.5.8 took 300.1.2.3:5 at 0:17, file.py:203", None),
    ],
)  # fmt: skip
def test_an_address_with_its_port_is_named_and_loopback_and_what_is_none_stays(text, left):
    assert Pseudonyms().unaddressed(text) == (text if left is None else left)
