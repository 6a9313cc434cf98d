"""The server with a web configuration: real TLS, real bcrypt."""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.web_calls import pages
from helpers.web_client import connect, get, raw, read_to_end
from helpers.web_files import TLS, Site, hashed, tls
from omniwatch.web import make_app
from omniwatch.web import server as webserver
from omniwatch.web.config import WebConfigError
from omniwatch.web.server import serve

MUTUAL = "client_ca_file: clients.pem, client_auth_type: "


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@contextmanager
def serving(site: Site, text: str) -> Iterator[str]:
    with serve(["127.0.0.1:0"], make_app(pages()), site.write(text)) as server:
        yield server.addresses[0]


def trusting(site: Site, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(site.ca_file))
    if client:
        context.load_cert_chain(client)
    return context


def test_https(site: Site) -> None:
    with serve(["127.0.0.1:0"], make_app(pages()), site.write(TLS)) as server:
        assert server.urls == [f"https://{server.addresses[0]}/"]
        reply = get(server.addresses[0], tls=trusting(site))
        assert reply.status == 200
        assert len(reply.body) == int(reply.headers["Content-Length"])


def test_the_end_of_tls_is_said(site: Site) -> None:
    with serving(site, TLS) as address:
        context = trusting(site)
        with (
            connect(address) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client,
        ):
            client.sendall(b"GET /-/healthy HTTP/1.1\r\n\r\n")
            assert read_to_end(client).endswith(b"\r\n\r\nhealthy\n")


def test_the_clients_versions_are_bounded(site: Site) -> None:
    with serving(site, tls("min_version: TLS13")) as address:
        old = trusting(site)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            get(address, tls=old)
        assert get(address, tls=trusting(site)).status == 200


def test_the_chosen_cipher_is_used(site: Site) -> None:
    with (
        serving(
            site, tls("max_version: TLS12, cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]")
        ) as address,
        connect(address) as plain,
        trusting(site).wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        assert client.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)


def refused(site: Site, address: str, client: Path | None) -> bool:
    """Whether the server ends the connection; with TLS 1.3 the client learns of it when it reads."""
    try:
        get(address, tls=trusting(site, client))
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def test_a_client_certificate_can_be_required(site: Site) -> None:
    with serving(site, tls(MUTUAL + "RequireAndVerifyClientCert")) as address:
        assert refused(site, address, None)
        assert refused(site, address, site.client("prometheus", trusted=False))
        assert get(address, tls=trusting(site, site.client("prometheus"))).status == 200


def test_a_client_certificate_can_be_verified_if_there_is_one(site: Site) -> None:
    with serving(site, tls(MUTUAL + "VerifyClientCertIfGiven")) as address:
        assert get(address, tls=trusting(site)).status == 200
        assert get(address, tls=trusting(site, site.client("prometheus"))).status == 200
        assert refused(site, address, site.client("prometheus", trusted=False))


def test_only_named_clients_pass(site: Site) -> None:
    names = "client_allowed_sans: [prometheus, 10.0.0.9, '::1']"
    with serving(site, tls(f"{MUTUAL}RequireAndVerifyClientCert, {names}")) as address:
        assert refused(site, address, site.client("grafana"))
        for allowed in (("prometheus",), ("other", "10.0.0.9"), ("::1",)):
            assert get(address, tls=trusting(site, site.client(*allowed))).status == 200


def test_an_intermediate_authority_is_enough(site: Site) -> None:
    middle = site.client_authority.create_child_ca()
    middle.cert_pem.write_to_path(site.directory / "clients.pem")
    client = site.directory / "client.pem"
    middle.issue_cert("prometheus").private_key_and_cert_chain_pem.write_to_path(client)
    with serving(site, tls(MUTUAL + "RequireAndVerifyClientCert")) as address:
        assert get(address, tls=trusting(site, client)).status == 200


def test_a_handshake_that_hangs_holds_up_nobody(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webserver, "HANDSHAKE_S", 0.5)
    with serving(site, TLS) as address:
        silent = [connect(address) for _ in range(5)]
        assert get(address, tls=trusting(site)).status == 200
        for client in silent:
            assert read_to_end(client) == b""
            client.close()


def test_plain_http_gets_nothing_and_ends_nothing(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(site, TLS) as address:
        assert b"HTTP/1" not in raw(address, b"GET / HTTP/1.1\r\n\r\n")
        assert get(address, tls=trusting(site)).status == 200
    assert capfd.readouterr().err == ""


def certificate(site: Site, address: str) -> object:
    with connect(address) as plain, trusting(site).wrap_socket(plain, server_hostname="127.0.0.1") as client:
        return client.getpeercert()["serialNumber"]


def test_a_renewed_certificate_is_served_without_a_restart(site: Site) -> None:
    with serving(site, TLS) as address:
        before = certificate(site, address)
        site.issue()
        assert certificate(site, address) != before


def test_a_certificate_half_renewed_keeps_the_old_one(site: Site) -> None:
    with serving(site, TLS) as address:
        before = certificate(site, address)
        key = (site.directory / "server.key").read_bytes()
        site.issue()
        (site.directory / "server.key").write_bytes(key)
        assert certificate(site, address) == before


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_password_over_tls(site: Site) -> None:
    with serving(site, TLS + f"basic_auth_users: {{prom: {hashed('secret')}}}") as address:
        context = trusting(site)
        reply = get(address, tls=context)
        assert reply.status == 401
        assert reply.headers["WWW-Authenticate"] == 'Basic realm="omniwatch", charset="UTF-8"'
        assert get(address, tls=context, Authorization=basic("prom", "wrong")).status == 401
        assert get(address, tls=context, Authorization=basic("prom", "secret")).status == 200


def test_users_and_headers_change_while_running(site: Site) -> None:
    frames = "http_server_config: {headers: {X-Frame-Options: deny}}\n"
    with serving(site, f"basic_auth_users: {{prom: {hashed('old')}}}") as address:
        assert get(address, Authorization=basic("prom", "old")).status == 200
        site.write(frames + f"basic_auth_users: {{prom: {hashed('new')}}}")
        assert get(address, Authorization=basic("prom", "old")).status == 401
        reply = get(address, Authorization=basic("prom", "new"))
        assert (reply.status, reply.headers["X-Frame-Options"]) == (200, "deny")
        site.write("basic_auth_users: {prom: broken}")
        assert get(address, Authorization=basic("prom", "new")).status == 200


def test_many_logins_at_once(site: Site) -> None:
    with serving(site, f"basic_auth_users: {{prom: {hashed('secret', cost=8)}}}") as address:
        first = get(address, Authorization=basic("prom", "secret"))
        replies = [first.status]

        def scrape() -> None:
            replies.append(get(address, Authorization=basic("prom", "secret")).status)

        scrapes = [threading.Thread(target=scrape) for _ in range(20)]
        for thread in scrapes:
            thread.start()
        for thread in scrapes:
            thread.join()
        assert replies == [200] * 21


def test_a_bad_web_configuration_listens_nowhere(site: Site) -> None:
    with pytest.raises(WebConfigError):
        serve(["127.0.0.1:0"], make_app(pages()), site.write("basic_auth_users: {prom: plain}"))
    with pytest.raises(WebConfigError):
        serve(["127.0.0.1:0"], make_app(pages()), site.directory / "nowhere.yml")
