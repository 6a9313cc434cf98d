"""Certificates and web configuration files for tests."""

from __future__ import annotations

from pathlib import Path

import bcrypt
import trustme

COST = 4
"""bcrypt's least, so that tests do not wait."""


def hashed(password: str, cost: int = COST) -> str:
    return bcrypt.hashpw(password.encode(), f"$2b${cost:02}$4IUjXu/u.lj1ooLwwo2fgO".encode()).decode()


class Site:
    """A directory with a server certificate, a client authority, and web.yml beside them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "web.yml"
        self.authority = trustme.CA()
        self.client_authority = trustme.CA()
        self.ca_file = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca_file)
        self.client_authority.cert_pem.write_to_path(directory / "clients.pem")
        self.issue()

    def issue(self) -> None:
        """Put a new server certificate and key in place."""
        issued = self.authority.issue_cert("localhost", "127.0.0.1", "::1")
        issued.cert_chain_pems[0].write_to_path(self.directory / "server.crt")
        issued.private_key_pem.write_to_path(self.directory / "server.key")

    def write(self, text: str) -> Path:
        """Replace web.yml as an editor does that writes a file beside and renames it."""
        beside = self.config.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.config)
        return self.config

    def client(self, *names: str, trusted: bool = True) -> Path:
        """Return the file with a client's key and certificate."""
        authority = self.client_authority if trusted else trustme.CA()
        file = self.directory / f"client-{'-'.join(names)}-{trusted}.pem"
        authority.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(file)
        return file


TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"


def tls(more: str) -> str:
    """Return a TLS section with further settings."""
    return TLS.replace("}", f", {more}}}")
