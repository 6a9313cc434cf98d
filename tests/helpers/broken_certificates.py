"""Certificates with bytes changed, as two readers of X.509 see them: ours and cryptography's."""

from __future__ import annotations

import random
import ssl
import warnings
from collections import Counter
from datetime import datetime, timezone

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from omniwatch.system.certificates import not_after_t

EXPIRIES = (datetime(2030, 1, 1, tzinfo=timezone.utc), datetime(2060, 1, 1, tzinfo=timezone.utc))
"""UTCTime and GeneralizedTime."""


def whole() -> list[bytes]:
    """Return certificates in DER, one of each form of time."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "orin")])
    begin = datetime(2020, 1, 1, tzinfo=timezone.utc)
    return [
        x509.CertificateBuilder(name, name, key.public_key(), 7, begin, expires)
        .sign(key, SHA256())
        .public_bytes(Encoding.DER)
        for expires in EXPIRIES
    ]


def play(seed: int, certificates: list[bytes], counts: Counter[str]) -> str:
    """Change bytes of a certificate. Returns where the two differ on one that both take, or what we raise, "" for nothing."""
    luck = random.Random(seed)
    der = bytearray(luck.choice(certificates))
    for _ in range(luck.choice((1, 1, 2, 5))):
        der[luck.randrange(len(der))] = luck.randrange(256)
    if luck.random() < 0.1:
        del der[luck.randrange(len(der)) :]
    try:
        (ours,) = not_after_t(ssl.DER_cert_to_PEM_cert(bytes(der)).encode())
    except ValueError:
        ours = None
    except Exception as error:
        return f"seed {seed}: {type(error).__name__}: {error}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = x509.load_der_x509_certificate(bytes(der)).not_valid_after_utc.timestamp()
    except Exception:
        theirs = None
    counts["taken by both" if None not in (ours, theirs) else "refused by one or both"] += 1
    if theirs is not None and ours != theirs:
        return f"seed {seed}: ours {ours}, cryptography's {theirs}"
    return ""
