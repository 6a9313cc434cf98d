"""`omniwatch install --fleet`: what it writes, what it refuses, how its unit is confined, and that it goes again."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import pytest
import yaml
from click.testing import CliRunner, Result

from helpers.installation import interpreter, packaged
from helpers.systemd_analyze import analyze
from helpers.trees import grow
from omniwatch.bundle import render
from omniwatch.cli import main
from omniwatch.settings import parse

UNIT = "omniwatch-uplink.service"
WRITES = "fleet: {remote_write_url: 'https://centre.example/api/v1/write', site: home}"
FULL = """
fleet:
  remote_write_url: https://centre.example/api/v1/write
  token_file: /etc/omniwatch/token
  ca_file: /etc/omniwatch/ca.pem
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    interpreter(tmp_path)
    grow(tmp_path, "proc/meminfo: MemTotal:       62841200 kB")
    grow(tmp_path, "usr/bin/vmagent: stands for vmagent")
    grow(tmp_path, "usr/bin/prometheus: stands for Prometheus")
    (tmp_path / "etc/omniwatch").mkdir(parents=True)
    return tmp_path


def configured(root: Path, text: str) -> Path:
    (root / "etc/omniwatch/omniwatch.yaml").write_text(text)
    return root


def install(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["install", "--root", str(root), *arguments])


def files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if "uplink" in path.name and "opt" not in path.relative_to(root).parts
    }


def unit(text: str) -> str:
    return render.render(parse(text))[PurePosixPath("deploy/fleet") / UNIT]


@pytest.mark.slow
def test_the_unit_and_its_configuration_come_stay_and_go(root: Path) -> None:
    configured(root, WRITES)
    done = install(root, "--fleet")
    assert done.exit_code == 0, done.output
    assert files(root) == {
        f"etc/systemd/system/{UNIT}",
        f"etc/systemd/system/multi-user.target.wants/{UNIT}",
        "etc/omniwatch/uplink.yml",
        "etc/omniwatch/uplink-relabel.yml",
    }
    assert install(root, "--fleet").output == "nothing to change\n"
    assert install(root).output == "nothing to change\n"
    assert install(root, "--profile", "orin").exit_code == 0
    assert len(files(root)) == 4
    grow(root, "var/lib/private/omniwatch-uplink/queue: samples")
    gone = CliRunner().invoke(main, ["uninstall", "--root", str(root), "--purge", "--yes"])
    assert gone.exit_code == 0, gone.output
    assert files(root) == set()


NOTE = f"note: {UNIT} and its files will be removed: the settings have none any more\n"


@pytest.mark.slow
@pytest.mark.parametrize("is_packaged", [False, True], ids=["installed", "packaged"])
def test_settings_without_a_fleet_take_the_uplink_away_and_say_so_first(
    root: Path, is_packaged: bool
) -> None:
    if is_packaged:
        packaged(root)
    assert install(configured(root, WRITES), "--fleet").exit_code == 0
    configured(root, "{}")
    trial = install(root, "--dry-run")
    assert (trial.exit_code, len(files(root))) == (0, 4)
    done = install(root)
    assert done.exit_code == 0, done.output
    for told, verb in ((trial, "would remove"), (done, "removed")):
        assert told.stderr.startswith(NOTE)
        assert f"{verb} {root}/etc/systemd/system/{UNIT}\n" in told.stdout
    assert files(root) == set()
    if not is_packaged:
        assert install(root).output == "nothing to change\n"


def test_settings_that_change_are_followed_and_so_is_the_agent(root: Path) -> None:
    install(configured(root, WRITES), "--fleet")
    changed = "fleet: {remote_write_url: 'https://other.example/push', agent: prometheus}"
    done = install(configured(root, changed), "--fleet")
    assert done.exit_code == 0, done.output
    assert "etc/omniwatch/uplink.yml" not in files(root)
    sent = yaml.safe_load((root / "etc/omniwatch/uplink-prometheus.yml").read_text())["remote_write"]
    assert [to["url"] for to in sent] == ["https://other.example/push"]
    assert "--enable-feature=agent" in (root / f"etc/systemd/system/{UNIT}").read_text()


@pytest.mark.parametrize(
    ("settings", "missing", "message"),
    [
        ("{}", "", "fleet.remote_write_url is empty: an uplink needs a centre to send to"),
        (WRITES, "usr/bin/vmagent", "vmagent is not installed; apt-get install --no-install-recommends victoria-metrics"),
        (FULL, "", "etc/omniwatch/token: no such file; fleet.token_file names it"),
    ],
)  # fmt: skip
def test_what_could_not_run_is_refused_in_one_line_and_nothing_is_written(
    root, settings, missing, message
) -> None:
    configured(root, settings)
    if missing:
        (root / missing).unlink()
    before = sorted(root.rglob("*"))
    done = install(root, "--fleet")
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(root.rglob("*")) == before


def test_secrets_reach_the_agent_as_credentials_and_stand_nowhere() -> None:
    text = unit(FULL)
    assert "LoadCredential=token:/etc/omniwatch/token" in text
    assert "-remoteWrite.bearerTokenFile=${CREDENTIALS_DIRECTORY}/token" in text
    assert "-remoteWrite.tlsCAFile=${CREDENTIALS_DIRECTORY}/ca" in text
    assert "bearerToken=" not in text
    assert "Credential" not in unit(WRITES)


def test_an_address_reaches_the_agent_as_it_is_written() -> None:
    text = unit("fleet: {remote_write_url: 'https://c/w?x=%C3%A4&tenant=pa$word'}")
    assert "  -remoteWrite.url=https://c/w?x=%%C3%%A4&tenant=pa$$word \\\n" in text


def test_the_queue_is_bounded_on_the_disk_and_the_agent_in_memory() -> None:
    text = unit(WRITES)
    assert "-remoteWrite.maxDiskUsagePerURL=1073741824 " in text
    assert "MemoryMax=128M" in text
    assert "CPUQuota=20%" in text


@pytest.mark.parametrize("text", [WRITES, FULL, FULL + "  agent: prometheus"])
@pytest.mark.programs
def test_systemd_reads_the_unit_and_finds_it_confined(tmp_path: Path, text: str) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / UNIT).write_text(unit(text))
    for program in ("usr/bin/vmagent", "usr/bin/prometheus", "bin/sh"):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", tmp_path / program)
    shipped = tmp_path / "usr/lib/systemd/system"
    shipped.mkdir(parents=True)
    for one in [
        *Path("/usr/lib/systemd/system").glob("*.target"),
        *Path("/usr/lib/systemd/system").glob("*.slice"),
    ]:
        if one.is_file():
            shutil.copy(one, shipped)

    verified = analyze("verify", "--man=no", f"--root={tmp_path}", f"/etc/systemd/system/{UNIT}")
    assert (verified.stderr, verified.returncode) == ("", 0)
    judged = analyze("security", "--no-pager", "--offline=yes", "--threshold=15", f"--root={tmp_path}", UNIT)
    assert judged.returncode == 0, judged.stdout[-3000:] + judged.stderr
