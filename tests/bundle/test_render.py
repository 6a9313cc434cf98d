"""Rendering: deterministic, refused when it does not hold, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
import yaml
from click.testing import CliRunner

from helpers.bundles import FINE, changed_settings, data_folders, replaced
from omniwatch.bundle import data, render
from omniwatch.cli import main
from omniwatch.settings import Settings, SettingsError, parse

RULES = PurePosixPath("alerts/streaming.rules.yaml")
PROMETHEUS = PurePosixPath("deploy/prometheus/prometheus.yml")
ALERTMANAGER = PurePosixPath("deploy/alertmanager/alertmanager.yml")


def run(*arguments: str | Path, exit_code: int = 0):
    result = CliRunner().invoke(main, ["render", *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() or path.is_symlink()
    }


def test_every_template_and_every_runbook_is_rendered_to_its_place():
    files = render.render(Settings())
    root = data.root()
    templates = [path for folder in ("alerts", "deploy") for path in (root / folder).rglob("*.j2")]
    expected = [str(path.relative_to(root)).removesuffix(".j2") for path in templates]
    expected += [f"dashboards/{path.name[:-8]}.json" for path in (root / "dashboards").glob("*.yaml.j2")]
    expected += [f"runbooks/{path.name}" for path in (root / "runbooks").glob("*.md")]
    assert list(map(str, files)) == sorted(expected)
    assert {RULES, PROMETHEUS, ALERTMANAGER} < set(files)
    for path, text in files.items():
        if path.parts[0] == "runbooks":
            assert text == (root / path).read_text()
        else:
            assert not {"[[", "]]", "[%", "%]", "[#", "#]"} & set(text.split())


def test_prometheus_own_braces_pass_through():
    assert "{{ $labels.stream }}" in render.render(Settings())[RULES]


@pytest.mark.slow
def test_the_same_settings_give_the_same_bytes_in_every_process():
    program = "import sys; from omniwatch.cli import main; sys.argv[1:] = ['render', '--config.file=/dev/null']; main()"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


@pytest.mark.slow
def test_an_installed_package_brings_the_same_data(tmp_path):
    site = tmp_path / "site"
    shutil.copytree(
        data.root() / "exporter/omniwatch", site / "omniwatch", ignore=shutil.ignore_patterns("__pycache__")
    )
    data_folders(site / "omniwatch/_data")
    program = "from omniwatch.cli import main; main()"
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path[:0] = {[str(site), *sys.path]!r}; {program}",
    ]
    installed = subprocess.run(
        [*command, "render", "--config.file=/dev/null"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert installed.stdout == run().output
    shutil.rmtree(site / "omniwatch/_data")
    bare = subprocess.run(
        [*command, "render", "--config.file=/dev/null"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.returncode == 2
    assert (
        bare.stderr
        == f"Error: {tmp_path}: no alerts, dashboards, deploy, runbooks here: the installation is not whole\n"
    )


def test_numbers_have_no_needless_fraction():
    assert "> 60\n" in render.render(changed_settings("alerts", drift_page_ms=60.0))[RULES]
    assert "> 62.5\n" in render.render(changed_settings("alerts", drift_page_ms=62.5))[RULES]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (15, "15s"), (90, "90s"), (300, "5m"), (3600, "1h"), (5400, "90m")]
)
def test_durations_read_as_prometheus_writes_them(seconds, text):
    assert render.duration(seconds) == text


def test_settings_reach_the_configuration_whatever_characters_they_hold():
    url = 'https://pager.example/a?b="c"&d=#e: { f }'
    files = render.render(changed_settings("receivers", page_webhook_url=url))
    receivers = yaml.safe_load(files[ALERTMANAGER])["receivers"]
    assert receivers[1]["webhook_configs"][0]["url"] == url
    files = render.render(changed_settings("site", exporter="[fd00::1]:9842", alertmanager="am.example:9093"))
    prometheus = yaml.safe_load(files[PROMETHEUS])
    assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == ["[fd00::1]:9842"]
    assert prometheus["alerting"]["alertmanagers"][0]["static_configs"] == [{"targets": ["am.example:9093"]}]


@pytest.mark.parametrize("base", ["https://wiki.example/on-call", "https://wiki.example/on-call/"])
def test_runbook_addresses_follow_the_settings(base):
    rules = yaml.safe_load(render.render(changed_settings("site", runbook_base_url=base))[RULES])
    for rule in rules["groups"][0]["rules"]:
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example/on-call/{rule['alert']}.md"


@pytest.mark.parametrize(("interval", "timeout"), [(1, "1s"), (10, "10s"), (30, "10s")])
def test_a_scrape_never_outlasts_its_interval(interval, timeout):
    files = render.render(changed_settings("alerts", scrape_interval_s=interval))
    assert yaml.safe_load(files[PROMETHEUS])["global"]["scrape_timeout"] == timeout


def test_a_window_with_too_few_samples_is_refused():
    message = "alerts.turns_window_s: expected a whole number >= 40, four scrapes and evaluations, got 39"
    with pytest.raises(SettingsError, match=message):
        parse("alerts: {turns_window_s: 39, scrape_interval_s: 10}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[[ alerts.drift_page ]]", "alerts/bad.rules.yaml.j2: .*has no attribute 'drift_page'"),
        ("[[ nothing ]]", "alerts/bad.rules.yaml.j2: 'nothing' is undefined"),
        ("\n[% if %]", "alerts/bad.rules.yaml.j2:2: Expected an expression.*"),
    ],
)
def test_a_template_that_does_not_hold_is_named(tmp_path, line, message):
    root = data_folders(tmp_path)
    (root / "alerts/bad.rules.yaml.j2").write_text(line)
    with pytest.raises(render.RenderError, match=message) as caught:
        render.render(Settings(), root)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_tools")
def test_one_file_is_printed_as_it_is_and_several_with_their_names():
    files = render.render(Settings())
    assert run("streaming.rules.yaml").stdout == files[RULES]
    assert run(RULES).stdout == files[RULES]
    both = run("prometheus.yml", "alertmanager.yml").stdout
    assert both == f"# file: {PROMETHEUS}\n{files[PROMETHEUS]}# file: {ALERTMANAGER}\n{files[ALERTMANAGER]}"
    assert run().stdout.count("# file: ") == len(files)


def test_the_settings_file_is_used(tmp_path):
    settings = tmp_path / "omniwatch.yaml"
    settings.write_text("alerts: {drift_page_ms: 62.5}")
    assert (
        "abs(omni_codec_drift_ms) > 62.5\n" in run("--config.file", settings, "streaming.rules.yaml").output
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["streaming.rule.yaml"],
            'Error: no file "streaming.rule.yaml"; the closest is "streaming.rules.yaml"\n',
        ),
        (["CodecDrif"], 'Error: no file "CodecDrif"; the closest is "CodecDrift.md"\n'),
        (
            ["streming.rules.yml"],
            'Error: no file "streming.rules.yml"; the closest is "streaming.rules.yaml"\n',
        ),
        (["codecdrift"], 'Error: no file "codecdrift"; the closest is "CodecDrift.md"\n'),
        (["alerts"], 'Error: no file "alerts"; the files of that folder are "alerts/*"\n'),
        (["a*b"], 'Error: no file is like "a*b"\n'),
        (["--config.file", "absent.yaml"], "Error: absent.yaml: No such file or directory\n"),
    ],
)
def test_what_the_user_got_wrong_is_one_line(arguments, message):
    result = run(*arguments, exit_code=2)
    assert (result.stdout, result.stderr) == ("", message)


@pytest.mark.usefixtures("no_tools")
def test_names_may_be_globs(tmp_path):
    run("--out", tmp_path, "*.rules.yaml", "runbooks/Codec*", "prometheus.yml", "alerts/streaming.*")
    rules = {name for name in map(str, render.paths()) if name.endswith(".rules.yaml")}
    others = {str(PROMETHEUS), "runbooks/CodecDrift.md", "alerts/streaming.test.yaml"}
    assert set(tree(tmp_path)) == rules | others
    assert render.select(render.paths(), ("alerts/*",)) == [
        p for p in render.paths() if p.parts[0] == "alerts"
    ]


@pytest.mark.slow
def test_some_files_are_rendered_as_among_all(monkeypatch):
    everything = render.render(Settings())
    assert list(everything) == render.paths()
    for path, text in everything.items():
        assert render.render(Settings(), only=[path]) == {path: text}


def test_one_file_is_rendered_without_reading_the_others(tmp_path):
    root = data_folders(tmp_path)
    for template in root.rglob("*.j2"):
        if template != root / f"{PROMETHEUS}.j2":
            template.write_text("{% not a template")
    assert render.render(Settings(), root, only=[PROMETHEUS]) == render.render(Settings(), only=[PROMETHEUS])
    with pytest.raises(render.RenderError):
        render.render(Settings(), root)


@pytest.mark.parametrize("option", ["--diff", "--dry-run"])
def test_a_comparison_needs_something_to_compare_with(option):
    assert "give one" in run(option, exit_code=2).stderr


def test_a_name_of_two_files_is_refused():
    files = [PurePosixPath("a/x.yml"), PurePosixPath("b/x.yml")]
    with pytest.raises(render.RenderError, match=r'"x\.yml" is more than one file: a/x\.yml, b/x\.yml'):
        render.select(files, ("x.yml",))
    assert render.select(files, ("b/x.yml",)) == [PurePosixPath("b/x.yml")]


@pytest.mark.usefixtures("no_tools")
def test_writing_again_touches_nothing(tmp_path):
    first = run("--out", tmp_path)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}
    again = run("--out", tmp_path)
    after = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}
    assert after == before
    assert (
        first.stdout.count("wrote: ") == again.stdout.count("unchanged: ") == len(render.render(Settings()))
    )


def test_only_what_changed_is_written_and_keeps_its_mode(tmp_path):
    render.write(render.render(Settings()), tmp_path)
    (tmp_path / RULES).chmod(0o640)
    before = {path: path.stat().st_ino for path in tmp_path.rglob("*") if path.is_file()}
    files = render.render(changed_settings("alerts", rtt_page_ms=900))
    written = render.write(files, tmp_path)
    after = {path: path.stat().st_ino for path in tmp_path.rglob("*") if path.is_file()}
    objectives = ("alerts/objectives.rules.yaml", "alerts/objectives.test.yaml")
    others = ("alerts/streaming.test.yaml", "dashboards/fleet.json", "dashboards/streaming.json")
    assert written == [*map(PurePosixPath, objectives), RULES, *map(PurePosixPath, others)]
    assert {path for path in after if after[path] != before[path]} == {tmp_path / path for path in written}
    assert (tmp_path / RULES).stat().st_mode & 0o777 == 0o640
    assert tree(tmp_path) == {str(path): text.encode() for path, text in files.items()}


@pytest.mark.usefixtures("no_tools")
def test_one_named_file_is_written_alone(tmp_path):
    run("--out", tmp_path, "streaming.rules.yaml")
    assert list(tree(tmp_path)) == [str(RULES)]


@pytest.mark.usefixtures("no_tools")
def test_nothing_is_replaced_when_one_file_cannot_be_written(tmp_path):
    render.write(render.render(Settings()), tmp_path)
    before = tree(tmp_path)
    shutil.rmtree(tmp_path / "runbooks")
    (tmp_path / "runbooks").symlink_to("nowhere")
    result = CliRunner().invoke(main, ["render", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: {tmp_path / 'runbooks'}: File exists\n")
    with pytest.raises(FileExistsError):
        render.write(render.render(FINE), tmp_path)
    (tmp_path / "runbooks").unlink()
    assert tree(tmp_path) == {name: text for name, text in before.items() if not name.startswith("runbooks/")}


@pytest.mark.programs
def test_nothing_is_written_when_what_was_rendered_does_not_hold(tmp_path, monkeypatch):
    root = data_folders(tmp_path / "data")
    monkeypatch.setattr(data, "root", lambda: root)
    replaced(root / "alerts/streaming.rules.yaml.j2", "abs(omni_codec_drift_ms)", "abs(omni_codec_drift_ms")
    for arguments in (["--out", tmp_path / "out"], ["streaming.rules.yaml"]):
        result = run(*arguments, exit_code=2)
        assert result.stdout == ""
        assert "nothing is written" in result.stderr
        assert "FAILED: promtool check rules: alerts/streaming.rules.yaml" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_tools")
@pytest.mark.slow
def test_a_diff_says_what_would_change_and_changes_nothing(tmp_path):
    out = tmp_path / "out"
    run("--out", out)
    assert run("--out", out, "--diff").stdout == ""
    settings = tmp_path / "omniwatch.yaml"
    settings.write_text("alerts: {rtt_page_ms: 900}")
    (out / PROMETHEUS).unlink()
    (out / ALERTMANAGER).write_bytes(b"route: \xff")
    before = tree(out)
    lines = run("--config.file", settings, "--out", out, "--diff", exit_code=1).stdout.splitlines()
    assert tree(out) == before
    rules = lines.index(f"+++ {out / RULES}")
    assert lines[rules - 1] == f"--- {out / RULES}"
    assert {"-        expr: omni_token_rtt_ms > 800", "+        expr: omni_token_rtt_ms > 900"} < set(
        lines[rules:]
    )
    assert lines[lines.index(f"+++ {out / PROMETHEUS}") - 1] == "--- /dev/null"
    assert lines[lines.index("-route: \N{REPLACEMENT CHARACTER}") + 1] == "\\ No newline at end of file"
    assert not any("runbooks/" in line for line in lines if line.startswith("+++"))
    run("--config.file", settings, "--out", out)
    assert run("--config.file", settings, "--out", out, "--diff").stdout == ""


@pytest.mark.usefixtures("no_tools")
@pytest.mark.slow
def test_a_dry_run_says_what_would_be_written_and_writes_nothing(tmp_path):
    run("--out", tmp_path, "prometheus.yml")
    output = run("--out", tmp_path, "--dry-run").stdout.splitlines()
    assert list(tree(tmp_path)) == [str(PROMETHEUS)]
    assert f"unchanged: {tmp_path / PROMETHEUS}" in output
    assert f"would write: {tmp_path / RULES}" in output


def test_tools_that_are_not_there_are_said_when_files_are_written(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("--out", tmp_path / "out")
    assert "promtool is not installed" in result.stderr
    assert "amtool is not installed" in result.stderr
    assert (tmp_path / "out" / RULES).exists()
