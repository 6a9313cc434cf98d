"""What Omniwatch asks of the fleet's Alertmanager: with the settings' account, over TLS, and what it says where it may not."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trustme

from omniwatch.bundle.alertmanager import Alertmanager, AlertmanagerError, of
from omniwatch.settings import Settings
from omniwatch.settings.fleet import Fleet

ALERT = {
    "labels": {"alertname": "CodecDrift"},
    "startsAt": "2026-01-01T00:00:00Z",
    "status": {"state": "active", "inhibitedBy": [], "silencedBy": []},
    "receivers": [{"name": "page"}],
}
METRICS = """# TYPE alertmanager_notification_requests_total counter
alertmanager_notification_requests_total{integration="webhook"} 5
# TYPE alertmanager_notification_requests_failed_total counter
alertmanager_notification_requests_failed_total{integration="webhook"} 2
"""


class Centre:
    """Answers as Alertmanager does, and keeps what it was asked with."""

    def __init__(self) -> None:
        self.authorizations: list[str | None] = []
        self.answers = {"/api/v2/alerts": json.dumps([ALERT]), "/metrics": METRICS}
        self.status = 200
        centre = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                centre.authorizations.append(self.headers["Authorization"])
                self.send_response(centre.status)
                self.end_headers()
                self.wfile.write(centre.answers[self.path.partition("?")[0]].encode())

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def centre() -> Iterator[Centre]:
    found = Centre()
    yield found
    found.server.shutdown()
    found.server.server_close()


def asked(centre: Centre, scheme: str = "http", **fleet: str) -> Alertmanager:
    urls = Fleet(remote_write_url="https://c/w", alertmanager_urls=[f"{scheme}://{centre.address}"], **fleet)
    (found,) = of(msgspec.structs.replace(Settings(), fleet=urls))
    return found


def secret(tmp_path: Path, text: str) -> str:
    (tmp_path / "secret").write_text(f"{text}\n")
    return str(tmp_path / "secret")


def test_the_settings_account_or_token_goes_with_each_request(centre: Centre, tmp_path: Path) -> None:
    assert asked(centre).alerts("orin")[0].receivers[0].name == "page"
    asked(centre, token_file=secret(tmp_path, "t0ken")).post([])
    asked(centre, alertmanager_username="orin", alertmanager_password_file=secret(tmp_path, "pass")).post([])
    basic = base64.b64encode(b"orin:pass").decode()
    assert centre.authorizations == [None, "Bearer t0ken", f"Basic {basic}"]


def test_what_was_sent_is_without_what_failed(centre: Centre) -> None:
    assert asked(centre).sent() == {"webhook": (3, 2)}
    centre.answers["/metrics"] = "what {"
    with pytest.raises(AlertmanagerError, match=rf"^http://{centre.address}/metrics: "):
        asked(centre).sent()


def test_a_refusal_and_another_servers_answer_are_one_line(centre: Centre) -> None:
    centre.answers["/api/v2/alerts"] = "<html>"
    with pytest.raises(AlertmanagerError, match="not Alertmanager's answer"):
        asked(centre).alerts("orin")
    centre.status = 401
    with pytest.raises(AlertmanagerError, match=rf"^http://{centre.address}: HTTP 401 Unauthorized$"):
        asked(centre).alerts("orin")


@pytest.mark.parametrize("field", ["token_file", "alertmanager_password_file", "ca_file"])
def test_a_file_that_cannot_be_read_is_named(centre: Centre, tmp_path: Path, field: str) -> None:
    absent = str(tmp_path / "absent")
    more = {"alertmanager_username": "orin"} if field == "alertmanager_password_file" else {}
    with pytest.raises(AlertmanagerError, match=rf"^{absent}: No such file or directory$"):
        asked(centre, "https", **{field: absent, **more}).alerts("orin")


def test_a_secret_that_is_no_text_is_one_line(centre: Centre, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff")
    with pytest.raises(AlertmanagerError, match=r"/secret: not UTF-8: invalid start byte$"):
        asked(centre, token_file=str(tmp_path / "secret")).alerts("orin")


def test_over_tls_both_show_their_certificates(centre: Centre, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    centre.server.socket = context.wrap_socket(centre.server.socket, server_side=True)
    mine = authority.issue_cert("orin.example")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    mine.private_key_and_cert_chain_pem.write_to_path(tmp_path / "mine.pem")
    ca_file, pair = str(tmp_path / "ca.pem"), str(tmp_path / "mine.pem")
    known = asked(centre, "https", ca_file=ca_file, client_cert_file=pair, client_key_file=pair)
    assert known.sent() == {"webhook": (3, 2)}
    with pytest.raises(AlertmanagerError, match="TLS: self-signed certificate"):
        asked(centre, "https").sent()


@pytest.mark.parametrize(
    ("receivers", "beats"),
    [
        ("receivers: [{name: page, webhook_configs: [{url: <secret>}]}, {name: watchdog}]", False),
        ("receivers: [{name: watchdog, webhook_configs: [{url: <secret>}]}]", True),
        ("receivers:", False),
    ],
)
def test_a_heartbeat_goes_by_webhook_where_the_running_configuration_says_so(centre, receivers, beats):
    alert = ALERT | {"receivers": [{"name": "watchdog"}]}
    centre.answers |= {
        "/api/v2/alerts": json.dumps([alert]),
        "/api/v2/status": json.dumps({"config": {"original": receivers}}),
    }
    assert asked(centre).beats() is beats
    centre.answers["/api/v2/alerts"] = "[]"
    assert asked(centre).beats() is False


@pytest.mark.parametrize("answer", ["{}", "[", '{"config": {"original": "{"}}'])
def test_a_configuration_that_is_none_is_one_line(centre, answer):
    centre.answers["/api/v2/status"] = answer
    with pytest.raises(AlertmanagerError, match=r"^http://127.0.0.1:\d+: .*(answer|YAML)") as refused:
        asked(centre).running()
    assert len(str(refused.value).splitlines()) == 1
