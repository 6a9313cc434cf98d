from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

import bcrypt
import pytest

from helpers.waiting import wait_until
from helpers.web_calls import call, pages
from helpers.web_files import COST, hashed
from omniwatch.web import make_app
from omniwatch.web.auth import (
    KEPT_CHECKS,
    REMEMBERED,
    WAITING_CHECKS,
    WAITING_PER_ADDRESS,
    BasicAuth,
    Guard,
    TooBusyError,
)
from omniwatch.web.config import WebConfig
from omniwatch.web.waiting_line import Places

PROM = (b"prom", hashed("secret").encode())
ANNA = (b"anna", hashed("pass:w\u00f6rd").encode())


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Checks:
    """The bcrypt checks that were run, each by the real function; those of guesses are held up while `go` is not set."""

    def __init__(self, real: Callable[[bytes, bytes], bool]) -> None:
        self.hashes: list[bytes] = []
        self.passwords: list[bytes] = []
        self.go = threading.Event()
        self.go.set()
        self._real = real

    def __call__(self, password: bytes, hashed_password: bytes) -> bool:
        self.hashes.append(hashed_password)
        self.passwords.append(password)
        assert not password.startswith(b"guess") or self.go.wait(60)
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


class Guesses:
    """Requests with wrong passwords, all at once, held up in their checks until the end."""

    def __init__(
        self, checks: Checks, attempt: Callable[[str, str], Any], addresses: list[str], each: int
    ) -> None:
        self.outcomes: list[Any] = []
        self._checks = checks
        checks.go.clear()

        def guess(address: str, number: int) -> None:
            self.outcomes.append(attempt(basic("prom", f"guess {number}"), address))

        self._threads = [
            threading.Thread(target=guess, args=(address, number))
            for address in addresses
            for number in range(each)
        ]

    def __enter__(self) -> Guesses:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._checks.go.set()
        for thread in self._threads:
            thread.join()


def logging_in(auth: BasicAuth) -> Callable[[str, str], bool | None]:
    """Have a login be True, False, or None where there is no place."""

    def login(header: str, address: str) -> bool | None:
        try:
            return auth.allows(header, address)
        except TooBusyError:
            return None

    return login


GOOD = basic("prom", "secret")
PROXY = "192.0.2.9"


def test_guessing_does_not_lock_out_who_was_let_in_before(checks: Checks) -> None:
    auth = BasicAuth([PROM])
    login = logging_in(auth)
    assert login(GOOD, PROXY)
    with Guesses(checks, login, [PROXY], WAITING_PER_ADDRESS + 5) as guesses:
        wait_until(lambda: len(guesses.outcomes) == 5)
        assert login(GOOD, PROXY)
    assert sorted(guesses.outcomes, key=str) == [False] * WAITING_PER_ADDRESS + [None] * 5


@pytest.mark.parametrize(
    ("after", "checked"),
    [
        ([PROM], 0),
        ([ANNA, PROM], 0),
        ([(b"prom", hashed("secret", COST + 1).encode())], 1),
    ],
    ids=["no-user-changed", "another-came", "hashed-anew"],
)
def test_after_a_reload_guesses_from_the_same_address_shut_no_known_one_out(
    checks: Checks, after: list[tuple[bytes, bytes]], checked: int
) -> None:
    """As behind a proxy: all come from one address."""
    config = [WebConfig(users=(PROM,))]
    app = Guard(make_app(pages()), lambda: config[0], lambda: 0.0)

    def login(header: str, address: str) -> int:
        return call(app, "/metrics", remote=address, authorization=header).status

    assert login(GOOD, PROXY) == 200
    config[0] = WebConfig(users=tuple(after))
    before = checks.passwords.count(b"secret")
    with Guesses(checks, login, [PROXY], WAITING_PER_ADDRESS + 1) as guesses:
        wait_until(lambda: guesses.outcomes == [503])
        assert [login(GOOD, PROXY) for _ in range(3)] == [200] * 3
        assert login(basic("anna", "pass:w\u00f6rd"), PROXY) == 503, "it was never let in: a guess as others"
    assert checks.passwords.count(b"secret") - before == checked


def test_who_comes_from_an_address_of_his_own_waits_for_few_guesses_of_another(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_line: list[str] = []
    take = Places.take
    monkeypatch.setattr(
        Places, "take", lambda self, address: take(self, address) and not in_line.append(address)
    )
    login = logging_in(BasicAuth([PROM]))
    outcome: list[bool | None] = []
    waits = threading.Thread(target=lambda: outcome.append(login(GOOD, "192.0.2.1")))
    with Guesses(checks, login, [PROXY], WAITING_PER_ADDRESS + 1) as guesses:
        wait_until(lambda: guesses.outcomes == [None])
        waits.start()
        wait_until(lambda: "192.0.2.1" in in_line)
    waits.join()
    assert outcome == [True]
    assert checks.passwords.index(b"secret") < WAITING_PER_ADDRESS - 1


def test_guesses_from_everywhere_leave_places_to_this_machine(checks: Checks) -> None:
    login = logging_in(BasicAuth([PROM]))
    others = [f"192.0.2.{number}" for number in range(WAITING_CHECKS)]
    with Guesses(checks, login, others, 1) as guesses:
        wait_until(lambda: guesses.outcomes == [None] * KEPT_CHECKS)
        assert login(GOOD, "198.51.100.1") is None
        mine = threading.Thread(target=lambda: guesses.outcomes.append(login(GOOD, "127.0.0.1")))
        mine.start()
    mine.join()
    assert sorted(guesses.outcomes, key=str) == [False] * (len(others) - KEPT_CHECKS) + [
        None
    ] * KEPT_CHECKS + [True]


def test_a_password_that_is_no_longer_right_loses_its_place(checks: Checks) -> None:
    auth = BasicAuth([PROM])
    login = logging_in(auth)
    assert login(GOOD, PROXY)
    auth.change([(b"prom", hashed("new").encode())])
    assert login(GOOD, PROXY) is False
    with Guesses(checks, login, [PROXY], WAITING_PER_ADDRESS + 1) as guesses:
        wait_until(lambda: guesses.outcomes == [None])
        assert login(GOOD, PROXY) is None


def test_the_first_requests_of_a_page_cost_one_check(checks: Checks) -> None:
    auth = BasicAuth([PROM])
    login = logging_in(auth)
    outcomes: list[bool | None] = []
    with Guesses(checks, login, [PROXY], 1):
        wait_until(lambda: checks.passwords == [b"guess 0"])
        page = [
            threading.Thread(target=lambda: outcomes.append(login(GOOD, PROXY)))
            for _ in range(WAITING_PER_ADDRESS - 1)
        ]
        for thread in page:
            thread.start()
    for thread in page:
        thread.join()
    assert outcomes == [True] * len(page)
    assert checks.passwords.count(b"secret") == 1


def guard(config: WebConfig, clock: Callable[[], float] = lambda: 0.0) -> Guard:
    return Guard(make_app(pages()), lambda: config, clock)


def test_without_a_wish_the_guard_changes_nothing() -> None:
    app = make_app(pages())
    for path in ("/", "/metrics", "/nope"):
        assert call(guard(WebConfig()), path) == call(app, path)


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/",
        "/streams.json",
        "/turns.json",
        "/live.json",
        "/static/strings.json",
        "/runbooks/",
        "/runbooks/CodecDrift",
        "/-/healthy",
        "/-/ready",
        "/nope",
    ],
)
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
