"""Turn `tls_server_config` of the web configuration into a context of Python's ssl.

What Python cannot do as exporter-toolkit means it is refused with a reason, never done more weakly.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from omniwatch.system import user_file
from omniwatch.system.certificates import expires_t

INLINE = "PEM text in this file is not read; write it to a file of its own and name that"
REFUSED = {
    "cert": f"{INLINE} in cert_file",
    "key": f"{INLINE} in key_file",
    "client_ca": f"{INLINE} in client_ca_file",
    "curve_preferences": "curves cannot be chosen here; leave this out",
}
"""Settings of exporter-toolkit that are known and not honoured."""

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
"""Go takes such a certificate without verifying it, which Python's ssl cannot."""
CIPHERS = {
    f"TLS_ECDHE_{key}_WITH_{suite}": f"ECDHE-{key}-{name}"
    for key in ("ECDSA", "RSA")
    for suite, name in {
        "AES_128_CBC_SHA": "AES128-SHA",
        "AES_256_CBC_SHA": "AES256-SHA",
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    }.items()
}
"""Go's name (https://pkg.go.dev/crypto/tls#CipherSuites) -> OpenSSL's."""
CIPHERS_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Suites of TLS 1.3, which are all on and, as in Go, are not chosen by `cipher_suites`."""


class TlsServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tls_server_config`, with exporter-toolkit's names and defaults."""

    cert_file: str
    key_file: str
    client_auth_type: str = "NoClientCert"
    client_ca_file: str = ""
    client_allowed_sans: list[str] = []
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: list[str] = []
    prefer_server_cipher_suites: bool = True

    def files(self) -> dict[str, str]:
        """Return the files that it names, by setting."""
        named = {name: getattr(self, name) for name in ("cert_file", "key_file", "client_ca_file")}
        return {name: file for name, file in named.items() if file or name != "client_ca_file"}


class Tls(NamedTuple):
    """A context, and when the certificates that it holds expire, by file; None where that cannot be told."""

    context: ssl.SSLContext
    expires: dict[str, float | None]


def make_context(tls: TlsServer, base: Path) -> Tls:
    """Return the context; files are relative to `base`. Raises ValueError: "setting: what is wrong"."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.minimum_version = _one_of("min_version", tls.min_version, VERSIONS)
    context.maximum_version = _one_of("max_version", tls.max_version, VERSIONS)
    if context.minimum_version > context.maximum_version:
        raise ValueError(f"max_version: {tls.max_version} is below min_version {tls.min_version}")
    _choose_ciphers(context, tls.cipher_suites)
    paths = {setting: base / file for setting, file in tls.files().items()}
    texts = {setting: _read(setting, path) for setting, path in paths.items()}
    _load_certificate(context, paths["cert_file"], paths["key_file"])
    _ask_clients(context, tls, paths.get("client_ca_file"))
    # OpenSSL has read the files by itself. What was read before it is what it holds if it is the same after it.
    for setting, path in paths.items():
        if _read(setting, path) != texts[setting]:
            raise ValueError(f"{setting}: {path}: changed while it was read")
    # A certificate that is its own authority is one file, and then it is what is served that counts.
    held = [setting for setting in ("client_ca_file", "cert_file") if setting in paths]
    return Tls(context, {str(paths[setting]): _expires_t(setting, texts[setting]) for setting in held})


def _expires_t(setting: str, pem: bytes) -> float | None:
    try:
        return expires_t(pem, of_authorities=setting == "client_ca_file")
    except ValueError:
        return None


def _one_of(setting: str, value: str, known: Mapping[str, Any]) -> Any:
    if value not in known:
        raise ValueError(f'{setting}: expected one of {", ".join(known)}, got "{value}"')
    return known[value]


def _choose_ciphers(context: ssl.SSLContext, suites: list[str]) -> None:
    if not suites:
        return
    chosen = [_one_of("cipher_suites", suite, CIPHERS) for suite in suites if suite not in CIPHERS_13]
    if not chosen:
        if context.maximum_version < ssl.TLSVersion.TLSv1_3:
            raise ValueError("cipher_suites: holds suites of TLS 1.3 only, which max_version excludes")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError as error:
        raise ValueError(f"cipher_suites: OpenSSL here has none of them: {error.reason}") from error


def _read(setting: str, path: Path) -> bytes:
    try:
        return user_file.read(path)
    except OSError as error:
        raise ValueError(f"{setting}: {path}: {error.strerror}") from error


def _load_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        # The empty password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, OSError) as error:
        mismatch = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        what = "the key is not the certificate's" if mismatch else "not a certificate and its key in PEM form"
        raise ValueError(f"cert_file, key_file: {cert}, {key}: {what}") from error


def _ask_clients(context: ssl.SSLContext, tls: TlsServer, client_ca: Path | None) -> None:
    kind = tls.client_auth_type
    if kind in UNVERIFIED:
        raise ValueError(
            f"client_auth_type: {kind} takes certificates unverified, which is not done here; "
            "use VerifyClientCertIfGiven or RequireAndVerifyClientCert"
        )
    context.verify_mode = _one_of("client_auth_type", kind, CLIENT_AUTH)
    if context.verify_mode == ssl.CERT_NONE and client_ca:
        raise ValueError("client_ca_file: of no effect without client_auth_type RequireAndVerifyClientCert")
    if context.verify_mode != ssl.CERT_NONE and not client_ca:
        raise ValueError(f"client_ca_file: missing; client_auth_type {kind} verifies against it")
    if tls.client_allowed_sans and context.verify_mode != ssl.CERT_REQUIRED:
        raise ValueError("client_allowed_sans: needs client_auth_type RequireAndVerifyClientCert")
    if client_ca:
        # As in Go, every certificate in the file is trusted, an intermediate one without its root too.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise ValueError(f"client_ca_file: {client_ca}: holds no certificate in PEM form") from error


def names_allowed_san(certificate: Mapping[str, Any] | None, allowed: Iterable[str]) -> bool:
    """Whether a verified client certificate (as `getpeercert` gives it) has one of these alternative names."""
    names = {_plain(kind, value) for kind, value in (certificate or {}).get("subjectAltName", ())}
    return not names.isdisjoint(allowed)


def _plain(kind: str, value: str) -> str:
    if kind != "IP Address":
        return value
    try:
        return str(ipaddress.ip_address(value.strip()))
    except ValueError:
        return value
