"""The probe's command line: addresses, limits, TLS, and what a user can mend."""

from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click.testing
import pytest
import trustme

from helpers.uvicorn_server import Serving, Speaker, speech
from omniwatch.cli import main
from omniwatch.desk.probe import Heard, Limits, Turn
from omniwatch.desk.probe.target import parse


def probe(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["probe", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://127.0.0.1:1"], "cannot reach 127.0.0.1:1: Connection refused"),
        (["ws://127.0.0.1:1"], "cannot reach 127.0.0.1:1: Connection refused"),
        (["http://nowhere.invalid"], "cannot reach nowhere.invalid:80: "),
        (["ws://nowhere.invalid"], "cannot reach nowhere.invalid:80: "),
        (
            ["ftp://127.0.0.1"],
            'URL: expected http://HOST:PORT for chat or ws://HOST:PORT for video, got "ftp:',
        ),
        (["127.0.0.1:8091"], "URL: expected http://HOST:PORT"),
        (["http://127.0.0.1:port"], "URL: expected http://HOST:PORT"),
        (
            ["http://127.0.0.1/v1/realtime"],
            "URL: expected http://HOST:PORT for chat or ws://HOST:PORT for video, with the path ",
        ),
        (["http://127.0.0.1:1", "--header=Authorization"], "--header: expected NAME:VALUE"),
        (["http://127.0.0.1:1", "--interval=5", "--json"], "--json: not with --interval"),
        (["http://127.0.0.1:1", "--interval=5", "--web.listen-address=x"], "--web.listen-address: expected"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_exit_2(words: list[str], said: str) -> None:
    result = probe(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {said}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--timeout=nan", "--max-rtt-ms=inf", "--fps=0", "--turns=0"])
def test_a_number_out_of_range_is_exit_2(option: str) -> None:
    assert probe("http://127.0.0.1:1", option).exit_code == 2


@pytest.mark.parametrize("scheme", ["https", "wss"])
def test_tls_is_spoken_and_checked(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    with Serving(Speaker([speech(80)]), ssl_certfile=tmp_path / "server.pem") as server:
        address = f"{scheme}://127.0.0.1:{server.port}"
        distrusted = probe(address, "--turns=1")
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        trusted = probe(address, "--turns=1")
    assert distrusted.exit_code == 2
    assert "TLS: " in distrusted.stderr
    assert trusted.exit_code == 0, trusted.output


def test_a_server_that_says_nothing_once_tls_is_spoken_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        accepting = pool.submit(lambda: tls.wrap_socket(listener.accept()[0], server_side=True))
        result = probe(f"wss://127.0.0.1:{listener.getsockname()[1]}", "--turns=1", "--timeout=1")
        accepting.result().close()
    assert result.exit_code == 2
    assert result.stderr.endswith(": timed out during opening handshake\n")


def test_a_redirection_of_the_websocket_is_said_and_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:

        def redirect() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 301 Moved\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")

        pool.submit(redirect)
        result = probe(f"ws://127.0.0.1:{listener.getsockname()[1]}", "--turns=1")
    assert result.exit_code == 1
    assert "turn 1: error: cannot follow redirect to ws://127.0.0.1:" in result.output


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://host", "http://host:80/v1/chat/completions"),
        ("https://host/", "https://host:443/v1/chat/completions"),
        ("http://host:8091/v1/chat/completions", "http://host:8091/v1/chat/completions"),
        ("ws://[::1]:8091/edge", "ws://[::1]:8091/edge/v1/video/chat/stream"),
        ("wss://host/edge/v1/video/chat/stream", "wss://host:443/edge/v1/video/chat/stream"),
    ],
)
def test_an_address_is_completed(url: str, asked: str) -> None:
    assert parse(url).url == asked


def test_a_limit_holds_up_to_itself_and_either_way() -> None:
    turn = Turn(2, "ok", Heard(800.0, 1000.0, 3, 60.0, -60.0))
    assert Limits(800.0, 60.0, 60.0).exceeded(turn) == []
    assert Limits(799.0, 59.0, 59.0).exceeded(turn) == [
        "turn 2: first audio after 800.0 ms, past 799 ms",
        "turn 2: underrun 60.0 ms, past 59 ms",
        "turn 2: drift -60.0 ms, past 59 ms",
    ]
