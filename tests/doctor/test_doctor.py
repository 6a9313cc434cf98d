"""`omniwatch doctor`: every part fails on its own, the archive is whole or not there, and the summary says what is wrong."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helpers.trees import grow
from omniwatch.cli import main
from omniwatch.doctor import bundle, journal, machine, spool, summary
from omniwatch.doctor.bundle import PARTS, Evidence
from omniwatch.doctor.device import AbsentError, DeviceAccess, fetch, run
from omniwatch.settings import Settings, parse

GROUP = "sys/fs/cgroup/system.slice/qwen3-omni.service"
DEVICE = f"""
sys/fs/cgroup/cgroup.controllers: cpu
{GROUP}/cgroup.procs: 4711
{GROUP}/cpu.max: 50000 100000
{GROUP}/cpu.stat: usage_usec 1000000\\nnr_periods 1000\\nnr_throttled 250\\nthrottled_usec 9000000
proc/meminfo: MemTotal: 62797580 kB\\nMemAvailable: 1000000 kB
proc/4711/task/4711/stat: 4711 (vllm (1)) R 1
proc/4711/task/4712/stat: 4712 (vllm) R 1
etc/os-release: PRETTY_NAME="Ubuntu 22.04"
etc/nv_tegra_release: # R36 (release), REVISION: 4.0
opt/vllm-omni/lib/python3.12/site-packages/vllm_omni-0.30.0.dist-info/METADATA: x
run/omniwatch/events.jsonl: {{"ev":"turn_end","t":1,"stream":"abc","turn":1,"reason":"stop"}}
"""
SIDECAR = """
omniwatch_source_up{source="tail:/run/omniwatch/events.jsonl"} 0.0
omniwatch_events_lost_total{source="tail:/run/omniwatch/events.jsonl"} 7.0
"""
ENTRY = {
    "__REALTIME_TIMESTAMP": "1763712000000000",
    "PRIORITY": "3",
    "SYSLOG_IDENTIFIER": "vllm",
    "_PID": "9",
    "MESSAGE": "CUDA error: an illegal memory access was encountered",
}


def gone(*_: object) -> str:
    raise AbsentError("is not there")


def answers(command: list[str]) -> str:
    if command[0] == "journalctl":
        return json.dumps(ENTRY) + "\n" if "--unit=qwen3-omni.service" in command else ""
    if command[0] == "systemctl":
        failed = command[3] == "qwen3-omni.service"
        state = "failed\nResult=oom-kill\nExecMainStatus=137" if failed else "active\nNRestarts=4"
        return f"ActiveState={state}\nEnvironment=TOKEN=abc\n"
    return gone()


def pages(url: str) -> str:
    if url == "http://127.0.0.1:9842/metrics":
        return SIDECAR
    if url == "http://127.0.0.1:9090/api/v1/alerts":
        labels = {"alertname": "CodecDrift", "severity": "page", "device": "orin", "stream": "0"}
        alerts = [
            {"labels": {"alertname": "Watchdog"}, "state": "firing"},
            {
                "labels": labels,
                "annotations": {"description": "It lags."},
                "state": "firing",
                "activeAt": "T",
            },
        ]
        return json.dumps({"data": {"alerts": alerts}})
    return gone()


def look(evidence: Evidence) -> list[str]:
    """Return what the summary says is wrong."""
    page = summary.write(evidence, "orin", 0.0)
    return page.partition("## What is wrong\n\n")[2].partition("\n\n##")[0].splitlines()


def doctor(*arguments: str | Path, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["doctor", *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def test_the_summary_says_what_is_wrong_at_a_glance(tmp_path):
    device = DeviceAccess(Settings(), root=grow(tmp_path, DEVICE), run=answers, fetch=pages)
    wrong = look(bundle.gather(device))
    assert wrong[0] == "- **CodecDrift** fires (page) device orin stream 0 since T: It lags."
    assert "- source tail:/run/omniwatch/events.jsonl cannot be read" in wrong
    assert "- 7 lines of tail:/run/omniwatch/events.jsonl lost since the sidecar's counters began" in wrong
    assert "- the CPU quota stopped the model server in 25.0% of 1000 periods" in wrong
    assert "- 1.6% of the memory can still be had" in wrong
    assert "- qwen3-omni.service has failed: oom-kill, exit status 137" in wrong
    assert "- omniwatch.service was started again 4 times" in wrong
    assert any("CUDA error: an illegal memory access" in line for line in wrong)
    assert not any("Watchdog" in line for line in wrong)


def test_what_is_gathered_from_a_device(tmp_path):
    device = DeviceAccess(Settings(), root=grow(tmp_path, DEVICE), run=answers, fetch=pages)
    files = bundle.gather(device).files
    assert "vllm_omni 0.30.0" in files["versions.txt"]
    assert "nv_tegra_release: # R36" in files["versions.txt"]
    assert "0.5 CPUs; a stop of up to 75 ms with these threads" in files["cpu.txt"]
    assert "threads that run or want to, now: 2" in files["cpu.txt"]
    assert "omni_server_cpu_throttled_periods_total" in files["readers/cgroup.prom"]
    event = {"ev": "turn_end", "t": 1.0, "stream": "stream-1", "turn": 1, "reason": "stop"}
    assert json.loads(files["events/0-events.jsonl"]) == event
    assert "2025-11-21T08:00:00.000000Z <3> vllm[9]: CUDA error" in files["journal/qwen3-omni.service.log"]
    assert "Environment" not in files["systemd/omniwatch.service.txt"]


def test_nothing_at_all_is_no_failure_and_every_part_says_why(tmp_path):
    evidence = bundle.gather(DeviceAccess(Settings(), root=tmp_path, run=gone, fetch=gone))
    assert set(evidence.missing) == {part.name for part in PARTS} - {"status"}
    page = summary.write(evidence, "orin", 0.0)
    for name in evidence.missing:
        assert f"- **{name}**: " in page


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
@pytest.mark.slow
def test_a_part_that_breaks_takes_no_other_with_it(tmp_path, part, monkeypatch):
    def broken(device: DeviceAccess):
        yield "half.txt", "what there was"
        raise RuntimeError("odd")

    device = DeviceAccess(Settings(), root=grow(tmp_path, DEVICE), run=answers, fetch=pages)
    whole = bundle.gather(device)
    others = [other if other is not part else part._replace(gather=broken) for other in PARTS]
    monkeypatch.setattr(bundle, "PARTS", tuple(others))
    found = bundle.gather(device)
    assert found.missing[part.name] == "RuntimeError: odd"
    assert found.files["half.txt"] == "what there was"
    of_it = {name for name, _ in _quietly(part, device)}
    assert set(whole.files) - of_it <= set(found.files)


def _quietly(part: bundle.Part, device: DeviceAccess) -> list[tuple[str, str]]:
    found = []
    try:
        found.extend(part.gather(device))
    except AbsentError:
        return found
    return found


def test_files_that_cannot_be_read_are_said(tmp_path):
    root = grow(tmp_path, "run/omniwatch/events.jsonl/\netc/os-release/\nproc/meminfo/")
    (root / "omniwatch.yaml").mkdir()
    (root / "web.yml").write_text("a: [")
    device = DeviceAccess(
        Settings(),
        root=root,
        config=root / "omniwatch.yaml",
        web_config=root / "web.yml",
        run=gone,
        fetch=gone,
    )
    missing = bundle.gather(device).missing
    assert "omniwatch.yaml: Is a directory" in missing["config"]
    assert f"{root}/web.yml: not YAML, line 1; left out" in missing["config"]
    assert "events.jsonl: Is a directory" in missing["events"]
    assert "os-release: Is a directory" in missing["versions"]
    assert "meminfo: Is a directory" in missing["system"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"data": 3}', '{"data": {"alerts": [1]}}'])
def test_an_answer_that_makes_no_sense_does_not_stop_the_summary(text):
    wrong = look(
        Evidence(files={"prometheus/alerts.json": text, "status.json": text, "sidecar/metrics.prom": "{"})
    )
    assert any(line.startswith("- alerts: not to be read (") for line in wrong)


def test_only_the_last_events_and_only_those_of_the_contract(tmp_path):
    lines = [f'{{"ev":"turn_end","t":{n},"stream":"s","turn":1,"reason":"stop"}}' for n in range(9)]
    (tmp_path / "events.jsonl").write_text("\n".join([*lines, "words", '{"ev":"other","x":"words"}', ""]))
    settings = Settings(sources=["tail:/events.jsonl", "journal:x.service", "-", "/gone-*.jsonl"])
    ((name, text),) = spool.gather(DeviceAccess(settings, root=tmp_path, lines=3))
    assert name == "events/0-events.jsonl"
    assert text.splitlines()[1:] == ["# no event (json), 6 bytes", "# an event of another kind, 27 bytes"]
    assert '"t":8.0' in text.splitlines()[0]


def test_the_journal_is_asked_for_as_much_as_is_wanted():
    asked: list[list[str]] = []

    def remember(command: list[str]) -> str:
        asked.append(command)
        return "no JSON\n"

    settings = parse("notify: {robots: [{kind: feishu, url_file: /secret}]}")
    device = DeviceAccess(settings, lines=7, since="-2h", run=remember)
    assert dict(journal.gather(device))["journal/omniwatch.service.log"] == "# not an entry, 7 bytes\n"
    assert {"--lines=7", "--since=-2h", "--unit=omniwatch.service"} <= set(asked[0])
    units = ("omniwatch.service", "qwen3-omni.service", "omniwatch-notify.service")
    assert [command[3] for command in asked] == [f"--unit={unit}" for unit in units]


def test_commands_and_addresses_that_fail_are_one_line(tmp_path):
    with pytest.raises(AbsentError, match=r"^no-such-program: No such file or directory$"):
        run(["no-such-program"])
    with pytest.raises(AbsentError, match=r"^ls: .*No such file or directory$"):
        run(["ls", str(tmp_path / "gone")])
    with pytest.raises(AbsentError, match=r"^http://127\.0\.0\.1:1/: .*refused"):
        fetch("http://127.0.0.1:1/")
    with pytest.raises(AbsentError, match="nonsense: expected http://HOST:PORT"):
        fetch("nonsense")


def test_a_reader_that_fails_is_said_and_the_others_are_there(tmp_path, monkeypatch):
    class Broken:
        def collect(self):
            raise ValueError("no sensor")

    monkeypatch.setattr(machine.host, "discover", lambda settings, root: {"jetson": Broken()})
    found = bundle.gather(DeviceAccess(Settings(), root=tmp_path, run=gone, fetch=gone))
    assert found.missing["readers"] == "jetson: ValueError: no sensor"


def test_a_dry_run_lists_every_part_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = doctor("--dry-run").output.splitlines()
    assert [line[:14].strip() for line in lines] == [part.name for part in PARTS]
    assert list(tmp_path.iterdir()) == []


def config(tmp_path: Path) -> Path:
    """Settings whose addresses nobody listens on."""
    path = tmp_path / "omniwatch.yaml"
    path.write_text("site: {exporter: '127.0.0.1:1', model_server: '127.0.0.1:1', device: 'a/b c'}\n")
    return path


def test_a_bundle_is_written_here_under_the_devices_name(tmp_path, monkeypatch):
    settings = config(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    result = doctor("--config.file", settings, "--prometheus.url", "http://127.0.0.1:1")
    (written,) = (tmp_path / "here").iterdir()
    assert written.name.startswith("omniwatch-doctor-a-b-c-20")
    assert f"wrote {written.name}: " in result.stdout
    assert "not had: sidecar: http://127.0.0.1:1/metrics: " in result.stderr
    with tarfile.open(written) as archive:
        assert archive.getnames()[0] == "omniwatch-doctor/SUMMARY.md"


def test_settings_that_do_not_hold_are_evidence_not_a_hindrance(tmp_path):
    bad = tmp_path / "omniwatch.yaml"
    bad.write_text("alerts: {drift_page_ms: sixty}\n")
    target = tmp_path / "out.tar.gz"
    result = doctor("--config.file", bad, "--prometheus.url", "http://127.0.0.1:1", "--out", target)
    assert "configuration: omniwatch.yaml: alerts.drift_page_ms: expected a number >= 0.001" in result.stdout
    assert "not had: settings: " in result.stderr
    with tarfile.open(target) as archive:
        assert archive.extractfile("omniwatch-doctor/config/omniwatch.yaml").read() == (
            b"alerts:\n  drift_page_ms: <text>\n"
        )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config.file", "{dir}/missing.yaml"], "{dir}/missing.yaml: No such file"),
        (
            ["--config.file", "{dir}/omniwatch.yaml", "--out", "{dir}/gone/x.tar.gz"],
            "{dir}/gone/x.tar.gz: No such",
        ),
        (["--lines", "0"], "Invalid value for '--lines'"),
    ],
)
def test_what_a_user_can_mend_is_exit_2_and_nothing_is_written(tmp_path, arguments, says):
    config(tmp_path)
    filled = [argument.format(dir=tmp_path) for argument in arguments]
    result = doctor(*filled, "--prometheus.url", "http://127.0.0.1:1", exit_code=2)
    assert says.format(dir=tmp_path) in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["omniwatch.yaml"]


def test_a_full_disk_leaves_the_old_bundle_and_nothing_half_written(tmp_path, monkeypatch):
    target = tmp_path / "out.tar.gz"
    target.write_bytes(b"the old one")
    real = tarfile.TarFile.addfile

    def full(self, entry, content):
        if entry.name.endswith("second"):
            raise OSError(28, "No space left on device")
        return real(self, entry, content)

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="No space left"):
        bundle.write(Evidence(files={"first": "x", "second": "y"}), "# words\n", target, 0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["out.tar.gz"]
    assert target.read_bytes() == b"the old one"
