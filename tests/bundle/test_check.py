"""`omniwatch check`: what it finds, with the real tools and without them, and its exit codes."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.bundles import rendered, replaced
from helpers.checks import RULES, no_tool, wrong
from helpers.needs import LINT, NEGATIVE_OFFSET
from omniwatch.bundle import check
from omniwatch.bundle.check import Status
from omniwatch.cli import main
from omniwatch.settings import Settings

TESTS = "alerts/streaming.test.yaml"
PROMETHEUS = "deploy/prometheus/prometheus.yml"
ALERTMANAGER = "deploy/alertmanager/alertmanager.yml"


def run(*arguments: str | Path, exit_code: int = 0, unit_tests: bool = True):
    options = ["--unit-tests"] if unit_tests else []
    result = CliRunner().invoke(main, ["check", *options, *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def lean(directory: Path) -> Path:
    """A bundle whose unit tests are those of the streaming rules alone: all of them take promtool its time."""
    for path in rendered(directory).glob("alerts/*.test.yaml"):
        if path.name != Path(TESTS).name:
            path.unlink()
    return directory


@pytest.fixture(scope="module")
def shipped() -> str:
    """What is said of what is shipped; promtool takes its time over it."""
    return run("-v").stdout


@pytest.mark.programs
def test_the_rules_unit_tests_are_run_where_they_are_asked_for(tmp_path, monkeypatch):
    """They take promtool half a minute; the rules themselves are always checked."""
    replaced(lean(tmp_path) / TESTS, "exp_alerts: []", "exp_alerts: [{exp_labels: {severity: page}}]")
    assert f"FAILED: promtool test rules: {TESTS}" in run(tmp_path, exit_code=1).output
    result = CliRunner().invoke(main, ["check", "-v", str(tmp_path)])
    assert "promtool test rules" not in result.output
    assert f"SUCCESS: promtool check rules: {RULES}" in result.output


@pytest.mark.programs
@pytest.mark.needs(LINT, NEGATIVE_OFFSET)
def test_what_is_shipped_passes_every_check_a_line_each(shipped):
    *lines, last = shipped.splitlines()
    noted = [line for line in lines if not line.startswith("SUCCESS: ")]
    assert [line.partition(" is not set")[0] for line in noted] == [
        "NOTE: links: omniwatch.yaml: grafana.url",
        "NOTE: links: omniwatch.yaml: site.runbook_base_url",
    ]
    assert last == f"{len(lines)} checks: {len(lines) - 2} passed, 2 to note"
    for check_of, subject in (
        ("promtool check rules", RULES),
        ("promtool test rules", TESTS),
        ("promtool check config", PROMETHEUS),
        ("promtool check config", "deploy/fleet/centre-prometheus.yml"),
        ("promtool check config", "deploy/fleet/uplink-prometheus.yml"),
        ("promtool check rules", "deploy/fleet/centre-held.rules.yaml"),
        ("amtool check-config", ALERTMANAGER),
        ("amtool check-config", "deploy/fleet/centre-alertmanager.yml"),
        ("version", "Alertmanager"),
        ("vmagent", "deploy/fleet/uplink.yml"),
        ("vmalert", "alerts/fleet.rules.yaml"),
        ("vmalert", "deploy/fleet/centre-held.rules.yaml"),
        ("alert", "CodecDrift"),
        ("dashboard", "dashboards/streaming.json"),
    ):
        assert f"SUCCESS: {check_of}: {subject}" in lines


@pytest.mark.slow
@pytest.mark.usefixtures("no_tools")
def test_a_directory_is_checked_as_it_is(tmp_path):
    assert run(rendered(tmp_path, Settings()), "-v").stdout == run("-v").stdout
    (tmp_path / "runbooks/CodecDrift.md").unlink()
    assert (
        "FAILED: alert: CodecDrift: runbook: no runbook page CodecDrift.md\n"
        in run(tmp_path, exit_code=1).output
    )


@pytest.mark.programs
@pytest.mark.needs(LINT, NEGATIVE_OFFSET)
def test_a_settings_file_is_rendered_first(tmp_path, shipped):
    settings = tmp_path / "omniwatch.yaml"
    told = "receivers: {page: {email_to: a@example.org}, watchdog_webhook_url: 'https://switch.example/'}"
    settings.write_text(f"alerts: {{drift_page_ms: 45}}\n{told}")
    found = run("--config.file", settings, "-v", unit_tests=False).stdout.splitlines()
    assert "SUCCESS: delivery: omniwatch.yaml" in found
    # Not asked for: the rules' unit tests. Not this device's: what a centre reads, and an uplink.
    left = ("SUCCESS: promtool test rules: ", "SUCCESS: version: vmalert", "SUCCESS: vm")
    expected = {line for line in shipped.splitlines()[:-1] if not line.startswith(left)}
    others = ("alerts/fleet.rules.yaml", "deploy/fleet/")
    expected -= {
        line
        for line in expected
        if "tool" in line and line.partition(": ")[2].partition(": ")[2].startswith(others)
    }
    assert expected == set(found[:-1]) - {"SUCCESS: delivery: omniwatch.yaml"}
    settings.write_text("{}")
    failed = run("--config.file", settings, exit_code=1, unit_tests=False).output
    assert "FAILED: delivery: omniwatch.yaml: receivers: nobody is told of a page" in failed
    settings.write_text("alerts: {drift_page_ms: sixty}")
    message = (
        'Error: omniwatch.yaml: alerts.drift_page_ms: expected a number >= 0.001, <= 1e+09, got "sixty"\n'
    )
    assert run("--config.file", settings, exit_code=2).stderr == message


def test_settings_and_a_directory_are_too_much(tmp_path):
    assert "not both" in run(tmp_path, "--config.file", "omniwatch.yaml", exit_code=2).stderr


def test_a_directory_that_is_not_there_is_one_line(tmp_path):
    absent = tmp_path / "absent"
    assert run(absent, exit_code=2).stderr == f"Error: {absent}: No such file or directory\n"


def test_a_directory_without_rules_fails(tmp_path):
    lines = run(tmp_path, exit_code=1).output.splitlines()
    assert lines == [
        f"FAILED: rules: {tmp_path}: no alerts/*.rules.yaml here",
        "1 checks: 0 passed, 1 failed",
    ]


@pytest.mark.programs
@pytest.mark.needs(LINT, NEGATIVE_OFFSET)
def test_tools_that_are_absent_are_said_and_are_no_failure(tmp_path, monkeypatch, shipped):
    with monkeypatch.context() as changed:
        changed.setenv("PATH", str(tmp_path))
        *lines, last = run("-v").stdout.splitlines()
    skipped = [line for line in lines if not line.startswith(("SUCCESS: ", "NOTE: "))]
    for tool, check_of, subject in (
        ("promtool", "check rules", RULES),
        ("promtool", "test rules", TESTS),
        ("promtool", "check config", PROMETHEUS),
        ("amtool", "check-config", ALERTMANAGER),
    ):
        assert f"SKIPPED: {tool} {check_of}: {subject}: {tool} is not installed" in skipped
    for tool, subject in (("vmagent", "deploy/fleet/uplink.yml"), ("vmalert", "alerts/fleet.rules.yaml")):
        assert f"SKIPPED: {tool}: {subject}: {tool} is not installed" in skipped
    tools = ("SUCCESS: promtool ", "SUCCESS: amtool ", "SUCCESS: vmagent", "SUCCESS: vmalert")
    assert len(skipped) == sum(line.startswith(tools) for line in shipped.splitlines())
    names = ("SKIPPED: promtool ", "SKIPPED: amtool ", "SKIPPED: vmagent: ", "SKIPPED: vmalert: ")
    assert all(line.startswith(names) for line in skipped)
    missing = ", ".join(f"{tool} is not installed" for tool in ("amtool", "promtool", "vmagent", "vmalert"))
    assert (
        last
        == f"{len(lines)} checks: {len(lines) - len(skipped) - 2} passed, 2 to note, {len(skipped)} skipped ({missing})"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("no_tools")
def test_only_what_fails_is_printed_and_a_summary(tmp_path):
    (summed_up,) = run(rendered(tmp_path)).output.splitlines()
    (tmp_path / "runbooks/CodecDrift.md").unlink()
    *failed, last = run(tmp_path, exit_code=1).output.splitlines()
    assert failed[0].startswith("FAILED: alert: CodecDrift: ")
    assert all(line.startswith("FAILED: ") for line in failed)
    before, after = (re.match(r"(\d+) checks: (\d+) passed", line).groups() for line in (summed_up, last))
    assert f", {len(failed)} failed, " in last
    assert int(after[1]) < int(before[1])


def test_tools_run_beside_each_other(tmp_path, monkeypatch):
    """Each waits until another has begun, and fails when none does. To be asked for a version is no check."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    tool = tmp_path / "promtool"
    tool.write_text(
        f"#!/bin/sh\n[ $1 = check ] || exit 0\nmkdir {meeting}/$$\n"
        f"for i in $(seq 100); do [ $(ls {meeting} | wc -l) -gt 1 ] && exit 0; sleep 0.1; done; exit 1\n"
    )
    tool.chmod(0o755)
    files = {RULES: "groups: []", "alerts/other.rules.yaml": "groups: []"}
    for name, text in files.items():
        (tmp_path / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / name).write_text(text)
    results = check.check(tmp_path / "bundle", {"promtool": str(tool)}.get)
    assert check.exit_code(results) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vllm", "/nosuch"], "/nosuch: No such file or directory"),
        (["--vllm", "nosuch"], "nosuch: No such file or directory"),
        (["/nosuch"], "/nosuch: No such file or directory"),
    ],
)
def test_arguments_are_checked_before_anything_runs(monkeypatch, arguments, message):
    def render_nothing(*arguments: object, **options: object) -> None:
        raise AssertionError("rendered")

    monkeypatch.setattr("omniwatch.bundle.render.render", render_nothing)
    assert run(*arguments, exit_code=2).stderr == f"Error: {message}\n"


def test_a_tool_that_cannot_run_is_a_failure(tmp_path):
    broken = tmp_path / "promtool"
    broken.write_text("no program")
    broken.chmod(0o755)
    results = check.check(rendered(tmp_path / "bundle"), lambda name: str(broken))
    assert f"FAILED: promtool check rules: {RULES}: {broken}: Exec format error" in wrong(results)
    assert check.exit_code(results) == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "found", "words"),
    [
        (RULES, "abs(", "abs", "FAILED: promtool check rules: {}: exit code 1", "could not parse expression"),
        (RULES, "> 60\n", "> 61\n", f"FAILED: promtool test rules: {TESTS}: exit code 1", "alertname:CodecDrift"),
        (PROMETHEUS, "5s", "five", "FAILED: promtool check config: {}: exit code 1", "not a valid duration"),
        (ALERTMANAGER, "receiver: page", "receiver: nobody", "FAILED: amtool check-config: {}: exit code 1", "nobody"),
    ],
)  # fmt: skip
@pytest.mark.programs
def test_what_the_tools_find_is_a_failure_in_their_own_words(tmp_path, name, old, new, found, words):
    replaced(lean(tmp_path) / name, old, new)
    output = run(tmp_path, exit_code=1).output
    line, *detail = output[output.index(found.format(name)) :].splitlines()
    assert line == found.format(name)
    assert words.replace(" ", "") in "".join(detail).replace(" ", "")
    assert detail[0].startswith("  ")


@pytest.mark.programs
@pytest.mark.needs(LINT)
def test_what_promtool_calls_lint_is_lint(tmp_path):
    rules = lean(tmp_path) / RULES
    text = rules.read_text()
    rules.write_text(
        text + text[text.index("      - alert: CodecDrift") : text.index("      - alert: TokenRTT")]
    )
    result = run(tmp_path, exit_code=1)
    assert f"LINT: promtool check rules: {RULES}: exit code 3" in result.output
    only = [r for r in check.check(tmp_path, unit_tests=False) if r.check == "promtool check rules"]
    assert check.exit_code(only) == 3


@pytest.mark.parametrize(
    ("name", "text", "detail"),
    [
        (RULES, "groups: [", "line 1: did not find expected node content"),
        (RULES, "groups: 3", "Expected `array`, got `int` - at `$.groups`"),
        (RULES, "- a", "Expected `object`, got `array`"),
        (TESTS, "tests: [", "line 1: did not find expected node content"),
        (PROMETHEUS, "a: \x00", "characters are not allowed"),
        (ALERTMANAGER, "a: 2024-99-99", "line 1: a value cannot be read"),
    ],
)
@pytest.mark.slow
def test_a_file_that_is_not_what_its_name_says_fails_without_tools(tmp_path, name, text, detail):
    (rendered(tmp_path) / name).write_text(text)
    results = check.check(tmp_path, no_tool)
    (line,) = wrong(results)
    assert line.startswith(f"FAILED: YAML: {name}: ")
    assert detail in line
    assert check.exit_code(results) == 1


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 0),
        ([Status.OK, Status.ABSENT], 0),
        ([Status.OK, Status.LINT], 3),
        ([Status.LINT, Status.FAILED, Status.OK], 1),
    ],
)
def test_exit_codes_are_promtools(statuses, code):
    assert check.exit_code(check.Result(status, "check", "subject") for status in statuses) == code


VLLM = """#!/bin/sh
echo "  --host HOST  address"
"""
UNKNOWN = "FAILED: vLLM: orin: --port: the installed vLLM does not know it; the closest is --host\n"


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize("name", ["./vllm-omni", "vllm-omni"])
def test_a_program_is_found_where_a_shell_finds_it(tmp_path, monkeypatch, name):
    (tmp_path / "vllm-omni").write_text(VLLM)
    (tmp_path / "vllm-omni").chmod(0o755)
    (monkeypatch.chdir if "/" in name else partial(monkeypatch.setenv, "PATH"))(str(tmp_path))
    assert UNKNOWN in run("--vllm", name, exit_code=1).output


@pytest.mark.usefixtures("no_tools")
def test_a_program_without_a_slash_is_looked_for_in_path_and_not_here(tmp_path, monkeypatch):
    (tmp_path / "vllm-omni").write_text(VLLM)
    (tmp_path / "vllm-omni").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    message = "Error: vllm-omni: No such file or directory\n"
    assert run("--vllm", "vllm-omni", exit_code=2).stderr == message
