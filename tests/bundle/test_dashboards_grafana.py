"""`omniwatch dashboards` against a stand-in that answers as Grafana's API does: nothing of a hand's is lost."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
import yaml
from click.testing import CliRunner, Result

from helpers.bundles import changed_settings
from helpers.grafana_api import TOKEN, FakeGrafana, grafana
from omniwatch.bundle import render
from omniwatch.cli import main
from omniwatch.desk.child_process import free_port
from omniwatch.settings import Settings

NAMES = ["device", "fleet", "model-server", "resumption", "streaming"]
STREAMING = json.loads(render.render(Settings())[PurePosixPath("dashboards/streaming.json")])


@pytest.fixture
def fake() -> Iterator[FakeGrafana]:
    with grafana() as served:
        yield served


def run(fake: FakeGrafana | None, *arguments: str | Path, exit_code: int = 0, token: str = TOKEN) -> Result:
    address = [] if fake is None else ["--url", fake.url]
    result = CliRunner().invoke(
        main, ["dashboards", *map(str, arguments), *address], env={"GRAFANA_TOKEN": token}
    )
    assert result.exit_code == exit_code, result.output
    return result


def edited(fake: FakeGrafana, uid: str = "omni-streaming", message: str = "") -> dict:
    model = json.loads(json.dumps(fake.newest(uid)["model"]))
    model["title"] = "Mine"
    fake.save(model, message=message)
    return model


def test_push_makes_the_folder_and_the_dashboards_and_a_second_push_nothing(fake):
    lines = run(fake, "push").output.splitlines()
    assert lines == ["create: folder Omniwatch", *(f"create: omni-{name}" for name in NAMES)]
    assert fake.folders == {"folder-0": "Omniwatch"}
    assert fake.newest("omni-streaming")["folder"] == "folder-0"
    assert {**fake.newest("omni-streaming")["model"], "id": 0, "version": 0} == {
        **STREAMING,
        "id": 0,
        "version": 0,
    }
    assert run(fake, "push").output.splitlines() == [f"unchanged: omni-{name}" for name in NAMES]
    assert fake.writes == len(NAMES)


def test_new_thresholds_update_what_was_pushed_before(fake, tmp_path):
    run(fake, "push")
    site = tmp_path / "omniwatch.yaml"
    site.write_text("alerts: {drift_page_ms: 45}")
    assert "update: omni-streaming" in run(fake, "push", "--config.file", site).output.splitlines()
    assert '"value": 45.0' in json.dumps(fake.newest("omni-streaming")["model"])
    assert len(fake.saves["omni-streaming"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "message", ["", "omniwatch drift panel: wider axis", "omniwatch 0123456789abcdef taken back"]
)
def test_a_hand_edit_is_refused_the_rest_goes_on_and_force_overwrites(fake, tmp_path, message):
    run(fake, "push")
    edited(fake, message=message)
    site = tmp_path / "omniwatch.yaml"
    site.write_text("alerts: {drift_page_ms: 45}")
    lines = run(fake, "push", "--config.file", site, exit_code=1).output.splitlines()
    assert "refused: omni-streaming: changed by alice at 2026-01-02T03:04:05Z (version 2)" in lines
    assert "update: omni-fleet" in lines
    assert fake.newest("omni-streaming")["model"]["title"] == "Mine"
    assert "update: omni-streaming" in run(fake, "push", "streaming", "--force").output
    assert fake.newest("omni-streaming")["model"]["title"] == STREAMING["title"]


def test_a_dashboard_that_somebody_else_made_under_the_uid_is_a_hand_edit(fake):
    fake.folders["f"] = "Omniwatch"
    fake.save({"uid": "omni-streaming", "title": "Not ours"})
    assert run(fake, "push", "streaming", exit_code=1).output.startswith("refused: omni-streaming")


def test_what_grafana_migrates_by_itself_is_no_hand_edit(fake, tmp_path):
    run(fake, "push", "streaming")
    fake.newest("omni-streaming")["model"]["schemaVersion"] = 42
    assert run(fake, "push", "streaming").output == "unchanged: omni-streaming\n"
    assert run(fake, "diff", "streaming").output == ""


def test_a_save_between_look_and_write_is_not_lost(fake):
    run(fake, "push", "fleet")
    fake.meanwhile.append(lambda: fake.save({**STREAMING, "title": "Theirs"}))
    output = run(fake, "push", "streaming", exit_code=1).output
    assert output.startswith("refused: omni-streaming: saved by somebody else just now")
    assert fake.newest("omni-streaming")["model"]["title"] == "Theirs"


def test_a_dry_run_says_everything_and_writes_nothing(fake):
    lines = run(fake, "push", "--dry-run", "--folder", "Ops").output.splitlines()
    assert lines == ["would create: folder Ops", *(f"would create: omni-{name}" for name in NAMES)]
    assert (fake.writes, fake.folders, fake.saves) == (0, {}, {})


def test_the_folder_is_found_by_its_title(fake):
    fake.folders["other"] = "Ops"
    run(fake, "push", "streaming", "--folder", "Ops")
    assert fake.folders == {"other": "Ops"}
    assert fake.newest("omni-streaming")["folder"] == "other"


def test_diff_shows_what_a_push_would_change(fake):
    assert run(fake, "diff", "streaming", exit_code=1).output.startswith("--- grafana/omni-streaming\n")
    run(fake, "push")
    assert run(fake, "diff").output == ""
    edited(fake)
    output = run(fake, "diff", exit_code=1).output
    assert '-  "title": "Mine",\n' in output
    assert f'+  "title": "{STREAMING["title"]}",\n' in output
    assert "omni-fleet" not in output


def test_pull_fetches_hand_edits_in_the_bundles_form(fake, tmp_path):
    run(fake, "push", "streaming")
    out = tmp_path / "out"
    assert run(fake, "pull", "streaming", "--out", out, "--dry-run").output == (
        f"would write: {out / 'streaming.json'}\n"
    )
    assert not out.exists()
    lines = run(fake, "pull", "--out", out).output.splitlines()
    assert f"wrote: {out / 'streaming.json'}" in lines
    assert f"absent: {out / 'fleet.json'}" in lines
    assert json.loads((out / "streaming.json").read_text()) == STREAMING
    assert run(fake, "pull", "streaming", "--out", out).output == f"unchanged: {out / 'streaming.json'}\n"
    edited(fake)
    run(fake, "pull", "omni-streaming", "--out", out)
    assert json.loads((out / "streaming.json").read_text()) == {**STREAMING, "title": "Mine"}


def test_a_token_from_a_file_goes_before_the_environments(fake, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    run(fake, "push", "fleet", "--token-file", file, token="wrong")
    assert TOKEN not in run(fake, "diff", "--token-file", file, exit_code=1).output


def test_a_grafana_below_a_path():
    with grafana("/monitoring") as below:
        assert "create: omni-fleet" in run(below, "push", "fleet").output


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ((500, {"message": "database\nis locked"}), "{}: Server Error 500: database is locked"),
        ((403, {"message": "no"}), "{}: Client Error 403: no (may the token write here?)"),
        ((200, "<html>"), "{}: this does not answer as Grafana does"),
        ((200, [{"name": "x"}]), "{}: this does not answer as Grafana does"),
    ],
)
def test_what_grafana_refuses_is_one_line(fake, broken, message):
    fake.broken = broken
    assert run(fake, "push", exit_code=2).stderr == f"Error: {message.format(fake.url)}\n"


def test_user_errors_are_one_line(fake, tmp_path):
    said = f"Error: {fake.url}: Unauthorized (is the token right?)\n"
    assert run(fake, "push", exit_code=2, token="wrong").stderr == said
    assert run(fake, "push", exit_code=2, token="").stderr == (
        "Error: no token: give --token-file FILE or set GRAFANA_TOKEN\n"
    )
    absent = tmp_path / "absent"
    assert run(fake, "diff", "--token-file", absent, exit_code=2).stderr == (
        f"Error: {absent}: No such file or directory\n"
    )
    absent.write_text("two words")
    assert run(fake, "diff", "--token-file", absent, exit_code=2).stderr == (
        f"Error: {absent}: expected a token, alone, on one line\n"
    )
    assert run(fake, "push", "nothing", exit_code=2).stderr == (
        f'Error: no dashboard "nothing"; there are {", ".join(NAMES)}\n'
    )
    nobody = f"http://127.0.0.1:{free_port()}"
    assert run(None, "push", "--url", nobody, exit_code=2).stderr == (
        f"Error: {nobody}: cannot be reached: Connection refused\n"
    )
    assert run(None, "push", "--url", "grafana", exit_code=2).stderr == (
        'Error: --url: expected http://… or https://…, got "grafana"\n'
    )
    assert fake.writes == 0


@pytest.mark.parametrize("given", ["--url", "grafana.url"])
@pytest.mark.parametrize("command", ["push", "diff"])
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://host:abc", "is no address of a Grafana: Port could not be cast to integer value as 'abc'"),
        ("http://host:99999", "is no address of a Grafana: Port out of range 0-65535"),
        ("http://[::1", "is no address of a Grafana: Invalid IPv6 URL"),
        ("http://:3000", "is no address of a Grafana: expected http://HOST[:PORT][/PATH]"),
        ("http://a b", "is no address of a Grafana: expected http://HOST[:PORT][/PATH]"),
    ],
)
@pytest.mark.slow
def test_an_address_that_is_none_is_said_in_one_line(tmp_path, given, command, address, why):
    site = tmp_path / "omniwatch.yaml"
    site.write_text(json.dumps({"grafana": {"url": address}}))
    words = ["--url", address] if given == "--url" else ["--config.file", site]
    told = run(None, command, *words, exit_code=2).stderr
    refused = f'Error: omniwatch.yaml: grafana.url: expected text: http:// or https:// address, or empty, got "{address}"\n'
    assert told in (f'Error: "{address}" {why}\n', refused if given == "grafana.url" else "")


def test_a_host_whose_name_cannot_be_is_said_in_one_line():
    told = run(None, "push", "--url", f"http://{'a' * 70}", exit_code=2).stderr
    assert told.startswith(f"Error: http://{'a' * 70}: cannot be reached: ")
    assert told.count("\n") == 1


def test_a_grafana_at_an_ipv6_address_is_asked():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as closed:
        port = closed.getsockname()[1]
    assert run(None, "push", "--url", f"http://[::1]:{port}", exit_code=2).stderr == (
        f"Error: http://[::1]:{port}: cannot be reached: Connection refused\n"
    )


def test_without_the_extra_one_line_says_what_to_install():
    program = (
        "import sys; sys.modules['grafana_client'] = None; sys.modules['grafana_client.api'] = None;"
        "from omniwatch.cli import main; main(['dashboards', 'diff'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr == "Error: omniwatch dashboards needs grafana-client: pip install 'omniwatch[grafana]'\n"
    )


def test_provisioning_names_the_same_folder_scrape_interval_and_source():
    settings = changed_settings("grafana", folder="Ops: edge", prometheus_url="http://prometheus:9090")
    files = render.render(settings)
    base = "deploy/grafana/provisioning"
    source = yaml.safe_load(files[PurePosixPath(f"{base}/datasources/omniwatch.yaml")])["datasources"][0]
    provider = yaml.safe_load(files[PurePosixPath(f"{base}/dashboards/omniwatch.yaml")])["providers"][0]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert source["jsonData"]["timeInterval"] == "1s"
    assert (provider["folder"], provider["allowUiUpdates"]) == ("Ops: edge", False)
