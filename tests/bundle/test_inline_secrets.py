"""`receivers.secrets: inline`: an installation writes two secrets into alertmanager.yml, and nothing else shows them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from helpers.installation import CONFIG, debians_servers, install
from helpers.old_tools import old_tools
from helpers.trees import grow
from omniwatch.cli import main

pytestmark = pytest.mark.slow

ALERTMANAGER = "etc/omniwatch/bundle/deploy/alertmanager/alertmanager.yml"
KEY, PASSWORD = "k3y-of-pagerduty-0123456789", 'pa"ss\\w{{ . }}örd'
SITE = """
receivers:
  secrets: inline
  page: {pagerduty_routing_key_file: /etc/omniwatch/secrets/pd, email_to: oncall@example.org}
  mail: {username: u, password_file: /etc/omniwatch/secrets/mail}
  watchdog_webhook_url: https://switch.example.org
"""


@pytest.fixture
def root(root: Path) -> Path:
    """A device with both secrets, in files for Alertmanager, and settings that want them in its configuration."""
    debians_servers(root)
    grow(root, f"etc/passwd: prometheus:x:104:{os.getgid()}:Prometheus daemon:/:/usr/sbin/nologin")
    for name, text in (("pd", f"{KEY}\n"), ("mail", PASSWORD)):
        path = root / "etc/omniwatch/secrets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / CONFIG).write_text(SITE)
    return root


def shows_a_secret(text: str) -> bool:
    return KEY in text or PASSWORD in text or "pa\\" in text


def test_an_installation_puts_them_where_alertmanagers_account_alone_reads_them(root):
    done = install(root, "--with-prometheus")
    assert done.exit_code == 0, done.output
    path = root / ALERTMANAGER
    config = yaml.safe_load(path.read_text())
    (pagerduty,) = next(one for one in config["receivers"] if one["name"] == "page")["pagerduty_configs"]
    assert pagerduty["routing_key"] == KEY
    assert config["global"]["smtp_auth_password"] == PASSWORD
    assert "_file" not in path.read_text().partition("receivers:")[2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_gid == os.getgid()
    holding = [
        one for one in root.rglob("*") if one.is_file() and shows_a_secret(one.read_text(errors="replace"))
    ]
    assert sorted(str(one.relative_to(root)) for one in holding) == [
        ALERTMANAGER,
        "etc/omniwatch/secrets/mail",
        "etc/omniwatch/secrets/pd",
    ]
    assert install(root, "--with-prometheus").output == "nothing to change\n"


def test_the_file_is_never_open_to_others_not_even_while_it_is_made(root, monkeypatch):
    """An earlier one that all may read does not make it one."""
    (root / CONFIG).write_text(SITE.replace("inline", "files"))
    assert install(root, "--with-prometheus").exit_code == 0
    assert stat.S_IMODE((root / ALERTMANAGER).stat().st_mode) == 0o644
    (root / CONFIG).write_text(SITE)
    seen: list[int] = []
    fchmod = os.fchmod

    def look(number: int, mode: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(number).st_mode))
        fchmod(number, mode)

    monkeypatch.setattr("omniwatch.system.atomic_write.os.fchmod", look)
    assert install(root, "--with-prometheus").exit_code == 0
    assert 0o600 in seen
    assert stat.S_IMODE((root / ALERTMANAGER).stat().st_mode) == 0o640


def test_no_difference_shows_one(root):
    for _ in range(2):
        difference = install(root, "--with-prometheus", "--diff")
        assert not shows_a_secret(difference.output)
        assert install(root, "--with-prometheus").exit_code == 0
        (root / CONFIG).write_text(SITE.replace("oncall@", "night@"))
    assert difference.exit_code == 1
    assert '+      - to: "night@example.org"' in difference.output
    (root / "etc/omniwatch/secrets/pd").write_text("another-key-0123456789")
    difference = install(root, "--with-prometheus", "--diff")
    assert difference.exit_code == 1
    assert difference.output == f"{root / ALERTMANAGER}: differs in a secret, which is not shown\n"
    assert "1 files below" in install(root, "--with-prometheus").output
    assert "another-key-0123456789" in (root / ALERTMANAGER).read_text()


def test_back_in_their_files_alertmanager_reads_its_configuration_still(root):
    assert install(root, "--with-prometheus").exit_code == 0
    other = next(
        (one for one in os.getgroups() if one != os.getgid()), os.getgid() + 1 if os.getuid() == 0 else None
    )
    if other is None:
        pytest.skip("this account has one group alone")
    os.chown(root / ALERTMANAGER, -1, other)
    (root / CONFIG).write_text(SITE.replace("inline", "files"))
    assert install(root, "--with-prometheus").exit_code == 0
    assert not shows_a_secret((root / ALERTMANAGER).read_text())
    assert (root / ALERTMANAGER).stat().st_gid == other


def test_rendering_names_the_files_whoever_asks(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["render", "--config.file", str(root / CONFIG), "--out", str(out)])
    assert done.exit_code == 0, done.output
    text = (out / "deploy/alertmanager/alertmanager.yml").read_text()
    assert 'routing_key_file: "/etc/omniwatch/secrets/pd"' in text


@pytest.mark.parametrize("content", ["", "\n", "two\nlines\n", "a\x07b"])
def test_a_file_that_is_no_secret_is_one_line(root, content):
    (root / "etc/omniwatch/secrets/pd").write_text(content)
    done = install(root, "--with-prometheus")
    assert done.exit_code == 2
    assert done.output == f"Error: {root}/etc/omniwatch/secrets/pd: expected a secret, alone, on one line\n"
    (root / "etc/omniwatch/secrets/pd").unlink()
    done = install(root, "--with-prometheus")
    assert (done.exit_code, done.output) == (
        2,
        f"Error: {root}/etc/omniwatch/secrets/pd: No such file or directory\n",
    )


def test_an_account_that_is_not_there_is_one_line(root):
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    done = install(root, "--with-prometheus")
    assert done.exit_code == 2
    assert "the account of prometheus-alertmanager.service was not found" in done.output
    assert not (root / ALERTMANAGER).exists()


def test_an_old_alertmanager_is_given_them(root, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    old_tools(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    done = CliRunner().invoke(main, ["check", "-v", "--config.file", str(root / CONFIG)])
    assert done.exit_code == 0, done.output
    assert "SUCCESS: amtool check-config: deploy/alertmanager/alertmanager.yml" in done.output


def test_a_newline_that_alertmanager_would_send_with_the_password_is_said(root):
    """As text editors end a file: 0.25 and 0.26 read a mail password whole."""
    mail = root / "etc/omniwatch/secrets/mail"
    (root / CONFIG).write_text(SITE.replace("inline", "files"))
    assert "newline" not in install(root, "--with-prometheus").stderr
    mail.write_text(f"{PASSWORD}\n")
    said = install(root, "--with-prometheus").stderr
    assert f"note: {mail}: ends in a newline" in said
    assert f"truncate --size=-1 {mail}\n" in said
    (root / CONFIG).write_text(SITE)
    assert "newline" not in install(root, "--with-prometheus").stderr, "an installation leaves it out"
