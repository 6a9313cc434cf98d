"""The uplink's token and certificate: from files to a centre that asks for them, and not to one that is somebody else."""

from __future__ import annotations

import http.server
import ssl
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import trustme

from helpers.fleet_uplinks import Running, joined
from helpers.waiting import wait_until
from omniwatch.desk.child_process import ChildProcess

TOKEN = "of-this-device-alone"


class Centre:
    """Takes remote writes over TLS and keeps what it was shown for a token."""

    def __init__(self, authority: trustme.CA) -> None:
        tokens = self.tokens = set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                tokens.add(self.headers["Authorization"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        Handler.do_POST.__doc__ = "Take it."
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def refused(service: ChildProcess, directory: Path) -> bool:
    """Whether the agent has said that it does not trust the centre."""
    return "certificate" in (directory / f"{service.name}.log").read_text()


@pytest.mark.parametrize("agent", ["vmagent", "prometheus"])
def test_the_token_goes_to_the_centre_whose_certificate_holds_and_to_no_other(tmp_path, agent):
    authority = trustme.CA()
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    secrets = {"token_file": str(tmp_path / "token"), "ca_file": str(tmp_path / "ca")}
    with ExitStack() as ending:
        run = Running(tmp_path, ending)
        given = run.given("trusting")
        centre = ending.enter_context(closing(Centre(authority)))
        other = ending.enter_context(closing(Centre(trustme.CA())))
        run.agent("well", joined(centre, given.address, agent=agent, **secrets))
        misled = run.agent("misled", joined(other, given.address, agent=agent, **secrets))
        wait_until(lambda: centre.tokens, 40, "a write to the centre")
        wait_until(lambda: refused(misled, tmp_path), 40, "the refusal of the other")
        assert centre.tokens == {f"Bearer {TOKEN}"}
        assert other.tokens == set()
