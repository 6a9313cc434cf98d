"""When certificates expire, held against what another reader of X.509 says of the same ones."""

from __future__ import annotations

import ssl
import sys
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.host_readers import scraped
from helpers.waiting import wait_until
from helpers.web_files import TLS, Site, tls
from omniwatch.host.certificates import Certificates, not_after_t, of_settings
from omniwatch.settings import parse
from omniwatch.system.child_process import ChildProcess, free_port
from omniwatch.web.config import certificate_files

KEY = ec.generate_private_key(ec.SECP256R1())
START = datetime(1950, 1, 1, tzinfo=timezone.utc)
LIMIT = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
MOMENTS = st.one_of(
    st.integers(1, int((LIMIT - START).total_seconds())).map(lambda s: START + timedelta(seconds=s)),
    st.sampled_from([LIMIT, *(datetime(year, 1, 1, tzinfo=timezone.utc) for year in (1970, 2000, 2050))]),
)


def made(expires: datetime, *, serial: int = 1, name: str = "orin", names: int = 0) -> bytes:
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = x509.CertificateBuilder(who, who, KEY.public_key(), serial, START, expires)
    if names:
        found = x509.SubjectAlternativeName([x509.DNSName(f"{n}.example") for n in range(names)])
        certificate = certificate.add_extension(found, critical=False)
    return certificate.sign(KEY, SHA256()).public_bytes(Encoding.PEM)


@settings(max_examples=60)
@given(MOMENTS, st.integers(1, 2**159 - 1), st.text(min_size=1, max_size=16), st.integers(0, 30))
def test_every_certificate_says_when_it_expires(
    expires: datetime, serial: int, name: str, names: int
) -> None:
    pem = made(expires, serial=serial, name=name, names=names)
    assert not_after_t(b"# ours\n" + pem + b"\n") == [expires.timestamp()]


DER = ssl.PEM_cert_to_DER_cert(made(LIMIT).decode())


@settings(max_examples=300)
@given(st.integers(0, len(DER)), st.integers(0, len(DER) - 1), st.integers(0, 255))
def test_a_damaged_certificate_is_refused_or_has_a_date(length: int, at: int, byte: int) -> None:
    damaged = bytearray(DER)
    damaged[at] = byte
    pem = ssl.DER_cert_to_PEM_cert(bytes(damaged[:length])).encode()
    try:
        (found,) = not_after_t(pem)
    except ValueError:
        return
    assert found <= LIMIT.timestamp()


@pytest.mark.parametrize("text", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", DER])
def test_what_holds_no_certificate_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="no certificate in PEM form"):
        not_after_t(text)


def test_of_a_chain_the_first_to_expire_counts_and_of_authorities_the_last(tmp_path: Path) -> None:
    soon, late = datetime(2030, 1, 1, tzinfo=timezone.utc), datetime(2060, 1, 1, tzinfo=timezone.utc)
    both = made(late) + made(soon)
    (tmp_path / "client.pem").write_bytes(both)
    (tmp_path / "ca.pem").write_bytes(both)
    fleet = f"client_cert_file: {tmp_path}/client.pem, client_key_file: /key, ca_file: {tmp_path}/ca.pem"
    assert scraped(Certificates(of_settings(parse(f"fleet: {{{fleet}}}"))), "certificates") == {
        f"omniwatch_certificate_not_after_timestamp_seconds {tmp_path}/ca.pem": late.timestamp(),
        f"omniwatch_certificate_not_after_timestamp_seconds {tmp_path}/client.pem": soon.timestamp(),
        f"omniwatch_certificate_readable {tmp_path}/ca.pem": 1,
        f"omniwatch_certificate_readable {tmp_path}/client.pem": 1,
        "omniwatch_host_reader_up certificates": 1,
    }


def test_the_web_configuration_names_certificates_and_a_key_is_none(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert certificate_files(site.write("basic_auth_users: {}")) == {}
    assert certificate_files(site.write(TLS)) == {"cert_file": tmp_path / "server.crt"}
    asks = "client_auth_type: RequireAndVerifyClientCert, client_ca_file: clients.pem"
    assert certificate_files(site.write(tls(asks))) == {
        "cert_file": tmp_path / "server.crt",
        "client_ca_file": tmp_path / "clients.pem",
    }


def test_no_file_no_series() -> None:
    assert scraped(Certificates(of_settings(parse("{}"))), "certificates") == {
        "omniwatch_host_reader_up certificates": 1
    }


def test_a_certificate_that_is_renewed_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.crt"
    name = f"omniwatch_certificate_not_after_timestamp_seconds {file}"
    watched = Certificates({"cert_file": file})
    read: list[Path] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), read_bytes(path))[1])
    for year in (2030, 2031):
        expires = datetime(year, 1, 1, tzinfo=timezone.utc)
        beside = tmp_path / "new"
        beside.write_bytes(made(expires))
        beside.replace(file)
        for _ in range(3):
            assert scraped(watched, "certificates")[name] == expires.timestamp()
    assert read == [file, file], "once a change, not once a scrape"


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    file = tmp_path / "server.crt"
    watched = Certificates({"cert_file": file})
    unreadable = {f"omniwatch_certificate_readable {file}": 0, "omniwatch_host_reader_up certificates": 1}
    assert scraped(watched, "certificates") == unreadable
    file.write_text("not a certificate")
    assert scraped(watched, "certificates") == unreadable
    trustme.CA().issue_cert("orin").cert_chain_pems[0].write_to_path(file)
    assert scraped(watched, "certificates")[f"omniwatch_certificate_readable {file}"] == 1
    file.unlink()
    assert scraped(watched, "certificates") == unreadable


def test_the_sidecar_shows_what_it_serves(tmp_path: Path) -> None:
    site = Site(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "omniwatch", "exporter", f"--web.config.file={site.write(TLS)}"]
    command += [f"--web.listen-address={address}", f"tail:{tmp_path}/events.jsonl"]
    trust = ssl.create_default_context(cafile=str(site.ca_file))
    sidecar = ChildProcess("sidecar", command, tmp_path)

    def page() -> str:
        try:
            with urllib.request.urlopen(f"https://{address}/metrics", timeout=10, context=trust) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    try:
        text = wait_until(page, what="the sidecar's metrics")
    finally:
        sidecar.stop()
    (expires_t,) = not_after_t((tmp_path / "server.crt").read_bytes())
    name = f'omniwatch_certificate_not_after_timestamp_seconds{{file="{tmp_path}/server.crt"}}'
    (line,) = [line for line in text.splitlines() if line.startswith(name)]
    assert float(line.split()[-1]) == expires_t
