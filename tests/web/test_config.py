from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path

import pytest

from helpers.web_files import TLS, Site, hashed, tls
from omniwatch.web.config import WatchedConfig, WebConfig, WebConfigError, load

HASH = hashed("secret")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_an_empty_file_asks_for_nothing(site: Site) -> None:
    assert load(site.write("")) == WebConfig()
    assert load(site.write("{}")) == WebConfig()


def test_a_whole_file(site: Site) -> None:
    config = load(
        site.write(
            f"""
tls_server_config:
  cert_file: server.crt
  key_file: {site.directory}/server.key
  client_ca_file: clients.pem
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus, 10.0.0.1]
  min_version: TLS13
  max_version: TLS13
  prefer_server_cipher_suites: true
http_server_config:
  http2: true
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Frame-Options: deny
    X-XSS-Protection: ""
basic_auth_users:
  prom: {HASH}
rate_limit:
  interval: 1m30s
  burst: 20
"""
        )
    )
    assert config.tls
    assert config.tls.verify_mode == ssl.CERT_REQUIRED
    assert config.tls.minimum_version == ssl.TLSVersion.TLSv1_3
    assert config.allowed_sans == ("prometheus", "10.0.0.1")
    assert config.headers == (("Strict-Transport-Security", "max-age=31536000"), ("X-Frame-Options", "deny"))
    assert config.users == ((b"prom", HASH.encode()),)
    assert (config.interval_s, config.burst) == (90.0, 20)


OURS_AND_PROMETHEUS = [
    "",
    TLS,
    tls("min_version: TLS13, cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]"),
    tls("client_ca_file: clients.pem, client_auth_type: RequireAndVerifyClientCert"),
    tls(
        "client_ca_file: clients.pem, client_auth_type: VerifyClientCertIfGiven, prefer_server_cipher_suites: false"
    ),
    TLS + "http_server_config: {http2: false, headers: {X-Frame-Options: deny, X-XSS-Protection: '1'}}",
    f"basic_auth_users: {{prom: {HASH}, anna: {HASH.replace('2b', '2y')}}}",
]
NEITHER = [
    "tls_server_config: {cert_file: server.crt}",
    tls("client_ca_file: clients.pem"),
    tls("cipher_suites: [RC4]"),
    "http_server_config: {headers: {Server: x}}",
    "http_server_config: {headers: {X-Frame-Options: allow}}",
    "basic_auth_users: {prom: hunter2}",
    "users: {}",
]


@pytest.mark.parametrize(
    ("text", "good"), [(t, True) for t in OURS_AND_PROMETHEUS] + [(t, False) for t in NEITHER]
)
@pytest.mark.programs
def test_prometheus_judges_the_same(site: Site, text: str, good: bool) -> None:
    site.write(text)
    promtool = subprocess.run(
        ["promtool", "check", "web-config", site.config], capture_output=True, check=False
    )
    assert (promtool.returncode == 0) is good
    try:
        load(site.config)
        ours = True
    except WebConfigError:
        ours = False
    assert ours is good


@pytest.mark.parametrize(
    ("interval", "seconds"), [("1s", 1), ("500ms", 0.5), ("1.5s", 1.5), ("2m", 120), ("1h", 3600), ('"0"', 0)]
)
def test_intervals(site: Site, interval: str, seconds: float) -> None:
    assert load(site.write(f"rate_limit: {{interval: {interval}, burst: 3}}")).interval_s == seconds


BAD = {
    "http_server_config: {http2: maybe}": "http_server_config.http2: expected true or false, got text",
    "http_server_config: {headers: {Server: x}}": (
        "http_server_config.headers.Server: cannot be set; expected one of Content-Security-Policy, "
    ),
    "http_server_config: {headers: {X-Frame-Options: allow}}": (
        'http_server_config.headers.X-Frame-Options: expected deny or sameorigin, got "allow"'
    ),
    'http_server_config: {headers: {Content-Security-Policy: "a\\nSet-Cookie: b"}}': (
        "http_server_config.headers.Content-Security-Policy: expected printable ASCII on one line"
    ),
    "basic_auth_users:": "basic_auth_users: expected a mapping, got null",
    "basic_auth_users: {7: x}": "basic_auth_users: every name: expected text, got a whole number",
    "basic_auth_users: {prom: 7}": "basic_auth_users.*: expected text, got a whole number",
    f"basic_auth_users: {{'a:b': {HASH}}}": "basic_auth_users.a:b: a user's name cannot hold a colon",
    "basic_auth_users: {prom: hunter2}": (
        "basic_auth_users.prom: not a bcrypt hash; make one with: htpasswd -nBC 10 prom"
    ),
    f"basic_auth_users: {{prom: {HASH[:-1]}}}": "basic_auth_users.prom: not a bcrypt hash; ",
    f"basic_auth_users: {{prom: {HASH.replace('$04$', '$03$')}}}": "basic_auth_users.prom: not a bcrypt hash; ",
    "rate_limit: {burst: 3}": "rate_limit.interval: missing",
    "rate_limit: {interval: soon}": 'rate_limit.interval: expected a duration such as 500ms or 1s, or "0", got "soon"',
    "rate_limit: {interval: 1s2}": 'rate_limit.interval: expected a duration such as 500ms or 1s, or "0", got "1s2"',
    "rate_limit: {interval: 1s, burst: 0}": "rate_limit.burst: expected a whole number >= 1",
    "rate_limit:": "rate_limit: empty; fill it in or leave it out",
    "users: {}": "users: no such setting",
    "[]": "expected a mapping, got a list",
    "just text": "expected a mapping, got text",
    "a: [1": "line 1: did not find expected ',' or ']'",
    "a: \x07": "not YAML: unacceptable character",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_gets_one_clear_line(site: Site, text: str) -> None:
    with pytest.raises(WebConfigError) as caught:
        load(site.write(text))
    message = str(caught.value)
    assert message.startswith("web.yml: " + BAD[text].format(dir=site.directory))
    assert "\n" not in message


@pytest.mark.parametrize(
    "text", ["basic_auth_users: {prom: hunter2}", "basic_auth_users: {prom: [hunter2]}", "a: 'hunter2"]
)
def test_errors_tell_no_secret(site: Site, text: str) -> None:
    with pytest.raises(WebConfigError) as caught:
        load(site.write(text))
    assert "hunter2" not in str(caught.value)


def test_a_long_name_does_not_fill_the_log(site: Site) -> None:
    name = "9" * 50_000
    with pytest.raises(WebConfigError) as caught:
        load(site.write(f"tls_server_config: {{cert_file: '{name}', key_file: '{name}'}}"))
    assert 1000 < len(str(caught.value)) < 1100


def test_a_file_that_cannot_be_read(site: Site) -> None:
    with pytest.raises(WebConfigError) as caught:
        load(site.config)
    assert str(caught.value) == f"{site.config}: No such file or directory"
    site.config.write_bytes(b"\xff\xfe")
    with pytest.raises(WebConfigError, match=r"^web.yml: not UTF-8: "):
        load(site.config)


def test_an_unchanged_file_is_read_once(site: Site) -> None:
    watched = WatchedConfig(site.write(TLS))
    assert watched.current() is watched.current()


def test_a_changed_file_is_taken_up(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    watched = WatchedConfig(site.write("http_server_config: {headers: {X-Frame-Options: deny}}"))
    with caplog.at_level(logging.INFO, "omniwatch"):
        site.write("http_server_config: {headers: {X-Frame-Options: sameorigin}}")
        assert watched.current().headers == (("X-Frame-Options", "sameorigin"),)
    assert caplog.messages == ["web configuration reloaded"]


def test_a_renewed_certificate_is_taken_up(site: Site) -> None:
    watched = WatchedConfig(site.write(TLS))
    before = watched.current().tls
    site.issue()
    assert watched.current().tls is not before


def test_a_bad_change_keeps_the_old_and_is_logged_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    watched = WatchedConfig(site.write(TLS))
    before = watched.current()
    site.write("tls_server_config: {cert_file: later.crt, key_file: server.key}")
    with caplog.at_level(logging.ERROR):
        assert watched.current() is before
        assert watched.current() is before
    assert caplog.messages == ["web configuration not reloaded, the old one stays"]
    assert watched.error
    assert watched.error.startswith("web.yml: tls_server_config.cert_file: ")
    (site.directory / "server.crt").rename(site.directory / "later.crt")
    assert watched.current() is not before
    assert watched.error is None


def test_a_vanished_file_keeps_the_old(site: Site) -> None:
    watched = WatchedConfig(site.write(TLS))
    before = watched.current()
    site.config.unlink()
    assert watched.current() is before
    site.write(TLS + f"basic_auth_users: {{a: {HASH}}}")
    assert watched.current().users


MUTUAL = tls("client_ca_file: clients.pem, client_auth_type: RequireAndVerifyClientCert")
NAMED = tls(
    "client_ca_file: clients.pem, client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [prometheus]"
)


@pytest.mark.parametrize(
    ("was", "now", "gone"),
    [
        (TLS, "", "tls_server_config"),
        (f"basic_auth_users: {{a: {HASH}}}", "", "basic_auth_users"),
        (MUTUAL, TLS, "tls_server_config.client_auth_type: RequireAndVerifyClientCert"),
        (NAMED, MUTUAL, "tls_server_config.client_allowed_sans"),
    ],
)
def test_protection_does_not_vanish_while_running(site: Site, was: str, now: str, gone: str) -> None:
    watched = WatchedConfig(site.write(was))
    before = watched.current()
    site.write(now)
    assert watched.current() is before
    assert watched.error == f"web.yml: {gone}: gone; restart to serve without"
    assert WatchedConfig(site.config).current() is not before
