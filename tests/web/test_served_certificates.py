"""What a page says of the certificates that it serves, held against what a client is shown in its handshake."""

from __future__ import annotations

import base64
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.parser import text_string_to_metric_families

from helpers.waiting import wait_until
from helpers.web_client import connect, get
from helpers.web_files import TLS, Site, tls
from omniwatch.desk.child_process import ChildProcess, free_port
from omniwatch.web.config import WatchedConfig
from omniwatch.web.server import serve

USES = bytes.fromhex("300c 300a 0608 2b06010505070301")
"""What OpenSSL writes behind a trusted certificate (X509_CERT_AUX): trusted for TLS servers."""
RELOADED = "omniwatch_web_config_last_reload_successful"
EXPIRES = "omniwatch_certificate_not_after_timestamp_seconds"
READABLE = "omniwatch_certificate_readable"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def address(site: Site) -> Iterator[str]:
    """A page of its own metrics."""
    site.write(TLS)
    renew(site, 2031)
    registry = CollectorRegistry()
    with serve(["127.0.0.1:0"], make_wsgi_app(registry), site.config, registry=registry) as server:
        yield server.addresses[0]


def in_year(year: int) -> datetime:
    return datetime(year, 6, 1, tzinfo=timezone.utc)


def renew(site: Site, year: int, name: str = "server", *, key: bool = True, trusted: bool = False) -> None:
    """Put a certificate that expires in a year in place, with its key or without."""
    issued = site.authority.issue_cert("localhost", "127.0.0.1", not_after=in_year(year))
    pem = issued.cert_chain_pems[0].bytes()
    if trusted:
        body = base64.encodebytes(ssl.PEM_cert_to_DER_cert(pem.decode()) + USES).decode()
        pem = f"-----BEGIN TRUSTED CERTIFICATE-----\n{body}-----END TRUSTED CERTIFICATE-----\n".encode()
    if key:
        issued.private_key_pem.write_to_path(site.directory / f"{name}.key")
    (site.directory / f"{name}.crt").write_bytes(pem)


def trusting(site: Site) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(site.ca_file))


def shown(site: Site, address: str, client: Path | None = None) -> dict[str, float]:
    """What the page says, by family, and the file's name where there is one."""
    context = trusting(site)
    if client:
        context.load_cert_chain(client)
    reply = get(address, tls=context)
    return {
        " ".join([sample.name, *(Path(file).name for file in sample.labels.values())]): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }


def served_t(site: Site, address: str) -> float:
    """When the certificate expires that a client is shown, by another reader of X.509."""
    with connect(address) as plain, trusting(site).wrap_socket(plain, server_hostname="127.0.0.1") as client:
        der = client.getpeercert(binary_form=True)
    assert der
    return x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()


def whole(year: int, name: str = "server.crt", reloaded: float = 1) -> dict[str, float]:
    return {RELOADED: reloaded, f"{EXPIRES} {name}": in_year(year).timestamp(), f"{READABLE} {name}": 1}


def test_after_a_reload_by_itself_the_new_list_is_shown(site: Site, address: str) -> None:
    assert shown(site, address) == whole(2031)
    renew(site, 2033, "other")
    site.write(TLS.replace("server.", "other."))
    assert shown(site, address) == whole(2033, "other.crt")
    assert served_t(site, address) == in_year(2033).timestamp()
    renew(site, 2032, "other", trusted=True)
    assert shown(site, address) == whole(2032, "other.crt")
    assert served_t(site, address) == in_year(2032).timestamp()


def test_a_certificate_renewed_without_its_key_does_not_count(site: Site, address: str) -> None:
    renew(site, 2035, key=False)
    assert shown(site, address) == whole(2031, reloaded=0)
    assert served_t(site, address) == in_year(2031).timestamp()
    renew(site, 2036)
    assert shown(site, address) == whole(2036)
    assert served_t(site, address) == in_year(2036).timestamp()


@pytest.mark.parametrize("broken", ["tls_server_config: [", "basic_auth_users: {prom: plain}", "{}"])
def test_a_configuration_that_could_not_be_taken_over_is_told(site: Site, address: str, broken: str) -> None:
    site.write(broken)
    assert shown(site, address) == whole(2031, reloaded=0)
    (site.directory / "server.crt").unlink()
    site.write(TLS)
    assert shown(site, address) == whole(2031, reloaded=0)
    renew(site, 2032)
    assert shown(site, address) == whole(2032)


def test_of_authorities_that_clients_are_checked_against_the_last_counts(site: Site) -> None:
    client = site.client("prometheus")
    registry = CollectorRegistry()
    site.write(tls("client_ca_file: clients.pem, client_auth_type: RequireAndVerifyClientCert"))
    both = (site.directory / "clients.pem").read_bytes() + site.authority.cert_pem.bytes()
    (site.directory / "clients.pem").write_bytes(both)
    with serve(["127.0.0.1:0"], make_wsgi_app(registry), site.config, registry=registry) as server:
        found = shown(site, server.addresses[0], client)
    last = max(one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(both))
    assert found[f"{EXPIRES} clients.pem"] == last


def test_files_that_change_while_they_are_read_are_not_taken_over(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The date is of what OpenSSL has read, and not of what stood there a moment before."""
    watched = WatchedConfig(site.write(TLS))
    before = watched.expires()
    load = ssl.SSLContext.load_cert_chain

    def renewed_meanwhile(context: ssl.SSLContext, *files: Path, **options: str) -> None:
        load(context, *files, **options)
        renew(site, 2040)

    renew(site, 2039)
    with monkeypatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_cert_chain", renewed_meanwhile)
        assert watched.expires() == before
        assert watched.error is not None
        assert "server.crt: changed while it was read" in watched.error
    assert watched.expires() == {str(site.directory / "server.crt"): in_year(2040).timestamp()}
    assert watched.error is None


def test_a_page_without_a_web_configuration_says_nothing_of_one() -> None:
    registry = CollectorRegistry()
    with serve(["127.0.0.1:0"], make_wsgi_app(registry), registry=registry) as server:
        assert get(server.addresses[0]).text == ""


@pytest.mark.parametrize(
    "command",
    [
        ["exporter", "tail:HERE/events.jsonl", "--web.listen-address=ADDRESS"],
        ["fleet", "serve", "HERE/fleet.yaml", "--web.listen-address=ADDRESS"],
        ["notify", "--config.file=HERE/omniwatch.yaml"],
    ],
)
def test_each_command_that_serves_shows_what_it_serves(site: Site, command: list[str]) -> None:
    renew(site, 2034)
    (site.directory / "fleet.yaml").write_text("devices: [{name: a, address: '127.0.0.1:9842'}]")
    address = f"127.0.0.1:{free_port()}"
    robot = f"{{kind: feishu, url_file: {site.directory}/url}}"
    (site.directory / "omniwatch.yaml").write_text(
        f"notify: {{listen_address: '{address}', robots: [{robot}]}}"
    )
    (site.directory / "url").write_text("https://open.feishu.cn/open-apis/bot/v2/hook/x")
    argv = [sys.executable, "-m", "omniwatch", *command, f"--web.config.file={site.write(TLS)}"]
    page = ChildProcess(
        command[0],
        [word.replace("HERE", str(site.directory)).replace("ADDRESS", address) for word in argv],
        site.directory,
    )

    def ready() -> bool:
        try:
            urllib.request.urlopen(f"https://{address}/metrics", timeout=10, context=trusting(site)).close()
        except OSError:
            return False
        return True

    try:
        wait_until(ready, what="the page")
        renew(site, 2035, key=False)
        found = shown(site, address)
    finally:
        page.stop()
    assert found.items() >= whole(2034, reloaded=0).items()
