"""When certificates expire, read from PEM text, and the metric families that tell it.

Python's ssl tells the dates of certificate authorities and of a live peer's certificate only, and a package that reads
X.509 would be a large dependency of the sidecar for one date. So the few fields before it are stepped over here, as
RFC 5280, section 4.1, lays them out in DER; nothing is verified.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from prometheus_client.core import GaugeMetricFamily, Metric

_PEM = re.compile(
    rb"-----BEGIN ((?:TRUSTED |X509 )?CERTIFICATE)-----(.+?)-----END \1-----",
    re.DOTALL,
)
"""What OpenSSL reads for a certificate. Of a trusted one, what it is trusted for comes after it."""
_VERSION = 0xA0
_TIMES = {0x17: re.compile(rb"\d{12}Z"), 0x18: re.compile(rb"\d{14}Z")}
"""UTCTime and GeneralizedTime, as certificates may have them: in UTC, to the second."""


def expires_t(pem: bytes, *, of_authorities: bool = False) -> float:
    """Return when what a PEM text holds expires: of a chain the first, of authorities the last. Raises ValueError."""
    return (max if of_authorities else min)(not_after_t(pem))


def not_after_t(pem: bytes) -> list[float]:
    """Return when each certificate in a PEM text expires, in seconds since the epoch. Raises ValueError."""
    found = [_not_after_t(base64.b64decode(body)) for _, body in _PEM.findall(pem)]
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


def families(expires: Mapping[str, float | None]) -> Iterable[Metric]:
    """Return the families of certificates by their files, None for one that cannot be read; none where there is no file."""
    if not expires:
        return
    not_after = GaugeMetricFamily(
        "omniwatch_certificate_not_after_timestamp_seconds",
        "When a certificate expires, of those that are served the one in use: of a chain the first, of authorities the last.",
        labels=["file"],
    )
    readable = GaugeMetricFamily(
        "omniwatch_certificate_readable",
        "Whether a certificate that the settings name can be read.",
        labels=["file"],
    )
    for file, at_t in expires.items():
        readable.add_metric([file], float(at_t is not None))
        if at_t is not None:
            not_after.add_metric([file], at_t)
    yield not_after
    yield readable
