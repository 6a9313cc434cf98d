from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from helpers.web_files import TLS, Site, tls
from omniwatch.web.config import WebConfigError, load
from omniwatch.web.tls import names_allowed_san


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_defaults_of_tls(site: Site) -> None:
    context = load(site.write(TLS)).tls
    assert context
    assert (context.minimum_version, context.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
    )
    assert context.verify_mode == ssl.CERT_NONE
    assert context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_ciphers_by_gos_names(site: Site) -> None:
    suites = "[TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA]"
    more = f"cipher_suites: {suites}, prefer_server_cipher_suites: false}}"
    context = load(site.write(TLS.replace("}", f", {more}"))).tls
    assert context
    old = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert old == ["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA"]
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_only_suites_of_tls_13_means_tls_13(site: Site) -> None:
    context = load(site.write(TLS.replace("}", ", cipher_suites: [TLS_AES_256_GCM_SHA384]}"))).tls
    assert context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


BAD = {
    "tls_server_config: {key_file: server.key}": "tls_server_config.cert_file: missing",
    "tls_server_config: {cert_file: server.crt}": "tls_server_config.key_file: missing",
    "tls_server_config:": "tls_server_config: empty; fill it in or leave it out",
    "tls_server_config: {cert_file: 1, key_file: k}": "tls_server_config.cert_file: expected text, got a whole number",
    "tls_server_config: {cert_file: nope.crt, key_file: server.key}": (
        "tls_server_config.cert_file: {dir}/nope.crt: No such file or directory"
    ),
    "tls_server_config: {cert_file: server.crt, key_file: ''}": "tls_server_config.key_file: {dir}: Is a directory",
    "tls_server_config: {cert_file: web.yml, key_file: server.key}": (
        "tls_server_config.cert_file, key_file: {dir}/web.yml, {dir}/server.key: "
        "not a certificate and its key in PEM form"
    ),
    "tls_server_config: {cert_file: ca.pem, key_file: server.key}": (
        "tls_server_config.cert_file, key_file: {dir}/ca.pem, {dir}/server.key: "
        "the key is not the certificate's"
    ),
    "tls_server_config: {cert: x, key_file: server.key}": (
        "tls_server_config.cert: PEM text in this file is not read; "
        "write it to a file of its own and name that in cert_file"
    ),
    tls(
        "curve_preferences: [X25519]"
    ): "tls_server_config.curve_preferences: curves cannot be chosen here; leave this out",
    tls("verify: yes"): "tls_server_config.verify: no such setting",
    tls("min_version: TLS11"): 'tls_server_config.min_version: expected one of TLS12, TLS13, got "TLS11"',
    tls(
        "min_version: TLS13, max_version: TLS12"
    ): "tls_server_config.max_version: TLS12 is below min_version TLS13",
    tls(
        "cipher_suites: [RC4]"
    ): "tls_server_config.cipher_suites: expected one of TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, ",
    tls("cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12"): (
        "tls_server_config.cipher_suites: holds suites of TLS 1.3 only, which max_version excludes"
    ),
    tls("client_auth_type: Always"): (
        "tls_server_config.client_auth_type: expected one of NoClientCert, VerifyClientCertIfGiven, "
        'RequireAndVerifyClientCert, got "Always"'
    ),
    tls("client_auth_type: RequireAnyClientCert"): (
        "tls_server_config.client_auth_type: RequireAnyClientCert takes certificates unverified, which is not done "
        "here; use VerifyClientCertIfGiven or RequireAndVerifyClientCert"
    ),
    tls(
        "client_auth_type: RequestClientCert"
    ): "tls_server_config.client_auth_type: RequestClientCert takes ",
    tls("client_auth_type: RequireAndVerifyClientCert"): (
        "tls_server_config.client_ca_file: missing; client_auth_type RequireAndVerifyClientCert verifies against it"
    ),
    tls("client_ca_file: clients.pem"): (
        "tls_server_config.client_ca_file: of no effect without client_auth_type RequireAndVerifyClientCert"
    ),
    tls("client_ca_file: server.key, client_auth_type: VerifyClientCertIfGiven"): (
        "tls_server_config.client_ca_file: {dir}/server.key: holds no certificate in PEM form"
    ),
    tls("client_ca_file: clients.pem, client_auth_type: VerifyClientCertIfGiven, client_allowed_sans: [a]"): (
        "tls_server_config.client_allowed_sans: needs client_auth_type RequireAndVerifyClientCert"
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_gets_one_clear_line(site: Site, text: str) -> None:
    with pytest.raises(WebConfigError) as caught:
        load(site.write(text))
    message = str(caught.value)
    assert message.startswith("web.yml: " + BAD[text].format(dir=site.directory))
    assert "\n" not in message


def test_a_key_with_a_passphrase_is_refused_without_asking_for_it(site: Site) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((site.directory / "server.key").read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (site.directory / "server.key").write_bytes(encrypted)
    with pytest.raises(WebConfigError, match="not a certificate and its key"):
        load(site.write(TLS))


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        ((("DNS", "prometheus"), ("DNS", "x")), True),
        ((("IP Address", "0:0:0:0:0:0:0:1"),), True),
        ((("IP Address", "10.0.0.1"),), True),
        ((("URI", "spiffe://site/prom"),), True),
        ((("DNS", "prometheus.evil"),), False),
        ((), False),
    ],
)
def test_alternative_names(names: tuple[tuple[str, str], ...], allowed: bool) -> None:
    wanted = ["prometheus", "::1", "10.0.0.1", "spiffe://site/prom"]
    assert names_allowed_san({"subjectAltName": names}, wanted) is allowed
    assert names_allowed_san(None, wanted) is False
