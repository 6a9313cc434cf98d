from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

import bcrypt
import pytest

from helpers.waiting import wait_until
from helpers.web_calls import call, pages
from helpers.web_files import hashed
from omniwatch.web import make_app
from omniwatch.web.auth import REMEMBERED, WAITING_CHECKS, BasicAuth, Guard, TooBusyError
from omniwatch.web.config import WebConfig

PROM = (b"prom", hashed("secret").encode())
ANNA = (b"anna", hashed("pass:w\u00f6rd").encode())


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Checks:
    """The bcrypt checks that were run, each by the real function, held up while `go` is not set."""

    def __init__(self, real: Callable[[bytes, bytes], bool]) -> None:
        self.hashes: list[bytes] = []
        self.go = threading.Event()
        self.go.set()
        self._real = real

    def __call__(self, password: bytes, hashed_password: bytes) -> bool:
        self.hashes.append(hashed_password)
        assert self.go.wait(60)
        return self._real(password, hashed_password)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    spy = Checks(bcrypt.checkpw)
    monkeypatch.setattr(bcrypt, "checkpw", spy)
    return spy


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        (basic("prom", "secret"), True),
        (basic("prom", "secret").replace("Basic", "bAsIc"), True),
        (basic("prom", "secret").replace(" ", "   "), True),
        (basic("anna", "pass:w\u00f6rd"), True),
        (basic("prom", "Secret"), False),
        (basic("prom", ""), False),
        (basic("prom", "secret\0"), False),
        (basic("prom", "pass:w\u00f6rd"), False),
        (basic("PROM", "secret"), False),
        (basic("", "secret"), False),
        ("", False),
        ("Basic", False),
        ("Basic ", False),
        ("Basic !!!", False),
        ("Basic cHJvbTpzZWNyZXQ", False),
        ("Basic \u00e9\u00e9\u00e9\u00e9", False),
        ("Basic " + base64.b64encode(b"promsecret").decode(), False),
        ("Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(), False),
        ("Bearer " + basic("prom", "secret")[6:], False),
    ],
)
def test_who_may_pass(header: str, allowed: bool) -> None:
    auth = BasicAuth([PROM, ANNA])
    assert auth.allows(header) is allowed
    assert auth.allows(header) is allowed


def test_a_long_password_counts_to_its_72nd_byte() -> None:
    long = "x" * 72
    auth = BasicAuth([(b"prom", hashed(long).encode())])
    assert auth.allows(basic("prom", long + "and more"))
    assert not auth.allows(basic("prom", long[:-1] + "y"))


@pytest.mark.parametrize("kind", ["2a", "2b", "2y"])
def test_hashes_of_every_maker(kind: str) -> None:
    auth = BasicAuth([(b"prom", PROM[1].replace(b"$2b$", f"${kind}$".encode()))])
    assert auth.allows(basic("prom", "secret"))
    assert not auth.allows(basic("prom", "wrong"))


def test_a_right_password_is_checked_once(checks: Checks) -> None:
    auth = BasicAuth([PROM])
    for _ in range(5):
        assert auth.allows(basic("prom", "secret"))
    assert checks.hashes == [PROM[1]]


def test_a_wrong_password_is_checked_each_time(checks: Checks) -> None:
    auth = BasicAuth([PROM])
    for _ in range(3):
        assert not auth.allows(basic("prom", "guess"))
    assert checks.hashes == [PROM[1]] * 3


def test_an_unknown_user_costs_the_same_as_a_known_one(checks: Checks) -> None:
    auth = BasicAuth([PROM, ANNA])
    for _ in range(3):
        assert not auth.allows(basic("nobody", "secret"))
    stand_in = checks.hashes[0]
    assert checks.hashes == [stand_in] * 3
    assert stand_in in (PROM[1], ANNA[1])
    for number in range(30):
        auth.allows(basic(f"nobody{number}", "secret"))
    assert set(checks.hashes) == {PROM[1], ANNA[1]}


def test_what_is_remembered_is_bounded(checks: Checks) -> None:
    users = [(f"u{number}".encode(), PROM[1]) for number in range(REMEMBERED + 1)]
    auth = BasicAuth(users)
    for user, _ in users:
        assert auth.allows(basic(user.decode(), "secret"))
    assert auth.allows(basic(f"u{REMEMBERED}", "secret"))
    assert len(checks.hashes) == REMEMBERED + 1
    assert auth.allows(basic("u0", "secret"))
    assert len(checks.hashes) == REMEMBERED + 2


def test_guessing_does_not_lock_out_who_was_let_in_before(checks: Checks) -> None:
    auth = BasicAuth([PROM])
    assert auth.allows(basic("prom", "secret"))
    checks.go.clear()
    outcomes: list[bool] = []
    refused: list[TooBusyError] = []

    def guess() -> None:
        try:
            outcomes.append(auth.allows(basic("prom", "guess")))
        except TooBusyError as error:
            refused.append(error)

    guesses = [threading.Thread(target=guess) for _ in range(WAITING_CHECKS + 5)]
    for thread in guesses:
        thread.start()
    try:
        wait_until(lambda: len(refused) == 5)
        assert auth.allows(basic("prom", "secret"))
    finally:
        checks.go.set()
    for thread in guesses:
        thread.join()
    assert outcomes == [False] * WAITING_CHECKS
    assert not auth.allows(basic("prom", "guess"))


def guard(config: WebConfig, clock: Callable[[], float] = lambda: 0.0) -> Guard:
    return Guard(make_app(pages()), lambda: config, clock)


def test_without_a_wish_the_guard_changes_nothing() -> None:
    app = make_app(pages())
    for path in ("/", "/metrics", "/nope"):
        assert call(guard(WebConfig()), path) == call(app, path)


@pytest.mark.parametrize("path", ["/metrics", "/", "/streams.json", "/-/healthy", "/-/ready", "/nope"])
def test_every_page_asks_for_the_password(path: str) -> None:
    app = guard(WebConfig(users=(PROM,)))
    refused = call(app, path)
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith('Basic realm="omniwatch"')
    assert call(app, path, authorization=basic("prom", "wrong")).status == 401
    assert (
        call(app, path, authorization=basic("prom", "secret")).status == call(make_app(pages()), path).status
    )


def test_a_refused_reload_reloads_nothing() -> None:
    calls: list[str] = []
    app = make_app(pages(reload=lambda: (True, calls.append("reload") or "reloaded")))
    assert call(Guard(app, lambda: WebConfig(users=(PROM,)), lambda: 0.0), "/-/reload", "POST").status == 401
    assert calls == []


def test_head_is_refused_without_a_body() -> None:
    reply = call(guard(WebConfig(users=(PROM,))), "/metrics", "HEAD")
    assert (reply.status, reply.body) == (401, b"")


def test_headers_are_on_every_answer_once() -> None:
    config = WebConfig(
        headers=(("X-Content-Type-Options", "nosniff"), ("Content-Security-Policy", "default-src 'self'")),
        users=(PROM,),
    )
    app = guard(config)
    for headers in ({}, {"authorization": basic("prom", "secret")}):
        reply = call(app, "/", **headers)
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Content-Security-Policy"] == "default-src 'self'"


def test_too_many_requests_are_429_before_any_password_is_checked(checks: Checks) -> None:
    now = [0.0]
    app = guard(WebConfig(users=(PROM,), interval_s=1.0, burst=2), lambda: now[0])
    wrong = {"authorization": basic("prom", "wrong")}
    assert [call(app, "/metrics", **wrong).status for _ in range(4)] == [401, 401, 429, 429]
    assert len(checks.hashes) == 2
    now[0] += 1.0
    assert call(app, "/metrics", authorization=basic("prom", "secret")).status == 200


def test_too_many_logins_are_503(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any) -> bool:
        raise TooBusyError

    monkeypatch.setattr(BasicAuth, "allows", busy)
    assert call(guard(WebConfig(users=(PROM,))), "/metrics").status == 503


def test_a_changed_password_holds_at_once() -> None:
    config = [WebConfig(users=(PROM,))]
    app = Guard(make_app(pages()), lambda: config[0], lambda: 0.0)
    old = {"authorization": basic("prom", "secret")}
    assert call(app, "/metrics", **old).status == 200
    config[0] = WebConfig(users=((b"prom", hashed("new").encode()),))
    assert call(app, "/metrics", **old).status == 401
    assert call(app, "/metrics", authorization=basic("prom", "new")).status == 200
