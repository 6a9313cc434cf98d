"""When certificates expire, held against what another reader of X.509 says of the same ones."""

from __future__ import annotations

import base64
import random
import ssl
from collections import Counter
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

from helpers import broken_certificates
from helpers.host_readers import scraped
from omniwatch.host.certificates import Certificates, of_settings
from omniwatch.settings import parse
from omniwatch.system import user_file
from omniwatch.system.certificates import not_after_t

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


USES = bytes.fromhex("300c 300a 0608 2b06010505070301")
"""What OpenSSL writes behind a trusted certificate (X509_CERT_AUX): trusted for TLS servers."""
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


SHARE = 1000
"""Certificates that are broken here, from a seed; `make adversary` breaks them for minutes."""


def test_what_another_reader_takes_of_a_broken_certificate_has_the_same_date() -> None:
    seed = random.randrange(1 << 30)
    certificates, counts = broken_certificates.whole(), Counter[str]()
    seeds = range(seed, seed + SHARE)
    assert [wrong for one in seeds if (wrong := broken_certificates.play(one, certificates, counts))] == []
    assert min(counts.values()) > SHARE / 10


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


def test_what_is_served_stands_beside_what_the_settings_name(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(made(LIMIT))
    files = {"fleet.ca_file": tmp_path / "ca.pem"}
    assert scraped(
        Certificates(files, lambda: {"/web.crt": 5.0, "/odd.crt": None}), "certificates"
    ) == scraped(Certificates(files), "certificates") | {
        "omniwatch_certificate_not_after_timestamp_seconds /web.crt": 5,
        "omniwatch_certificate_readable /web.crt": 1,
        "omniwatch_certificate_readable /odd.crt": 0,
    }


@pytest.mark.parametrize("label", ["TRUSTED CERTIFICATE", "X509 CERTIFICATE"])
def test_a_certificate_by_another_of_openssls_names(label: str) -> None:
    plain = made(LIMIT).decode()
    assert not_after_t(plain.replace("CERTIFICATE", label).encode()) == [LIMIT.timestamp()]
    trusted = base64.b64encode(ssl.PEM_cert_to_DER_cert(plain) + USES).decode()
    pem = f"-----BEGIN {label}-----\n{trusted}\n-----END {label}-----\n"
    assert not_after_t(pem.encode() + made(START + timedelta(1))) == [
        LIMIT.timestamp(),
        (START + timedelta(1)).timestamp(),
    ]
    with pytest.raises(ValueError, match="no certificate in PEM form"):
        not_after_t(pem.replace(f"END {label}", "END CERTIFICATE REQUEST").encode())


def test_no_file_no_series() -> None:
    assert scraped(Certificates(of_settings(parse("{}"))), "certificates") == {
        "omniwatch_host_reader_up certificates": 1
    }


def test_a_certificate_that_is_renewed_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.crt"
    name = f"omniwatch_certificate_not_after_timestamp_seconds {file}"
    watched = Certificates({"cert_file": file})
    read: list[Path] = []
    whole = user_file.read
    monkeypatch.setattr(user_file, "read", lambda path: (read.append(path), whole(path))[1])
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
