"""When the certificates expire that this device serves or shows, or checks others against.

Python's ssl tells the dates of certificate authorities and of a live peer's certificate only, and a package that reads
X.509 would be a large dependency of the sidecar for one date. So the few fields before it are stepped over here, as
RFC 5280, section 4.1, lays them out in DER; nothing is verified.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric

from omniwatch.settings import Settings

CA_FILE = "ca_file"
"""How the name of a setting ends whose file holds authorities: one of them that is valid is enough."""
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_VERSION = 0xA0
_TIMES = {0x17: re.compile(rb"\d{12}Z"), 0x18: re.compile(rb"\d{14}Z")}
"""UTCTime and GeneralizedTime, as certificates may have them: in UTC, to the second."""


def not_after_t(pem: bytes) -> list[float]:
    """Return when each certificate in a PEM text expires, in seconds since the epoch. Raises ValueError."""
    found = [_not_after_t(base64.b64decode(body)) for body in _PEM.findall(pem)]
    if not found:
        raise ValueError("no certificate in PEM form")
    return found


def _not_after_t(der: bytes) -> float:
    try:
        _, at, _ = _element(der, 0)
        _, at, _ = _element(der, at)
        tag, _, end = _element(der, at)
        at = end if tag == _VERSION else at
        for _ in ("serialNumber", "signature", "issuer"):
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at)
        _, _, at = _element(der, at)
        tag, at, end = _element(der, at)
    except IndexError:
        raise ValueError("a certificate that ends too soon") from None
    text = der[at:end]
    if tag not in _TIMES or not _TIMES[tag].fullmatch(text):
        raise ValueError("a certificate without a date of expiry")
    if len(text) == len("YYMMDDhhmmssZ"):
        text = (b"19" if text >= b"50" else b"20") + text
    return datetime.strptime(text.decode(), "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's tag, and where its content begins and ends. Raises IndexError."""
    tag, length, at = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(der[at : at + size], "big"), at + size
    if at + length > len(der):
        raise IndexError
    return tag, at, at + length


def of_settings(settings: Settings) -> dict[str, Path]:
    """Return the files of certificates that omniwatch.yaml names, by setting."""
    named = {"ca_file": settings.fleet.ca_file, "client_cert_file": settings.fleet.client_cert_file}
    return {f"fleet.{name}": Path(file) for name, file in named.items() if file}


class Certificates:
    """The families `omniwatch_certificate_*` of these files, by setting. A file is read anew when it has changed.

    Of a file that holds several, the first to expire counts; of authorities the last.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        # A certificate that is its own authority is one file, and then it is what is served or shown that counts.
        authorities = {path: True for setting, path in files.items() if setting.endswith(CA_FILE)}
        self._files = authorities | {
            path: False for setting, path in files.items() if not setting.endswith(CA_FILE)
        }
        self._known: dict[Path, tuple[tuple[int, int, int], float]] = {}

    def collect(self) -> Iterable[Metric]:
        """Return the families of one scrape: none where no setting names a file."""
        if not self._files:
            return
        expires = GaugeMetricFamily(
            "omniwatch_certificate_not_after_timestamp_seconds",
            "When a file's certificate expires: of several the first, of authorities the last.",
            labels=["file"],
        )
        readable = GaugeMetricFamily(
            "omniwatch_certificate_readable",
            "Whether a file of certificates that the settings name can be read.",
            labels=["file"],
        )
        for path, has_authorities in self._files.items():
            try:
                expires.add_metric([str(path)], self._expires_t(path, has_authorities=has_authorities))
                readable.add_metric([str(path)], 1)
            except (OSError, ValueError):
                readable.add_metric([str(path)], 0)
        yield expires
        yield readable

    def _expires_t(self, path: Path, *, has_authorities: bool) -> float:
        now = path.stat()
        signature = now.st_ctime_ns, now.st_size, now.st_ino
        seen, expires_t = self._known.get(path, (None, 0.0))
        if signature != seen:
            expires_t = (max if has_authorities else min)(not_after_t(path.read_bytes()))
            self._known[path] = signature, expires_t
        return expires_t
