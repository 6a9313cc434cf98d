"""The systemd units: the published one to the character, verified and hardened by systemd's own tools."""

from __future__ import annotations

import gzip
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from helpers.paths import DATA
from helpers.systemd_analyze import analyze
from omniwatch import settings
from omniwatch.bundle import profiles, render
from omniwatch.cli import main
from omniwatch.settings import Settings
from omniwatch.web.server import MAX_CONNECTIONS

UNITS = DATA / "units"
SERVER, SIDECAR, BRIDGE = "qwen3-omni.service", "omniwatch.service", "omniwatch-notify.service"


def rendered(profile: str, **server: float) -> dict[str, str]:
    site = settings.parse(yaml.safe_dump({"server": {"profile": profile, **server}}))
    return {path.name: text for path, text in render.render(site).items()}


def system(tmp_path: Path, profile: str) -> Path:
    """A file tree as of a device: both units, what they start, and systemd's own units."""
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    files = rendered(profile)
    for name in (SERVER, SIDECAR, BRIDGE):
        (units / name).write_text(files[name], encoding="utf-8")
    (units / "docker.service").write_text("[Service]\nExecStart=/usr/bin/docker\n", encoding="utf-8")
    shipped = tmp_path / "usr/lib/systemd/system"
    shipped.mkdir(parents=True)
    for unit in [
        *Path("/usr/lib/systemd/system").glob("*.target"),
        *Path("/usr/lib/systemd/system").glob("*.slice"),
    ]:
        if unit.is_file():
            shutil.copy(unit, shipped)
    for program in (
        "opt/omniwatch/bin/omniwatch",
        "bin/sh",
        "usr/bin/docker",
        "usr/local/bin/vllm-server",
        "opt/vllm-omni/bin/vllm-omni",
    ):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", tmp_path / program)
    return tmp_path


def directives(unit: str) -> list[str]:
    """Each directive as it stands, continued lines together, without comments."""
    found: list[str] = []
    for line in unit.splitlines():
        if found and found[-1].endswith("\\"):
            found[-1] += "\n" + line
        elif line and not line.startswith(("#", ";", "[")):
            found.append(line)
    return found


def test_the_published_unit_is_there_to_the_character() -> None:
    published = (UNITS / "seed-qwen3-omni.service").read_text(encoding="utf-8")
    ours = rendered("int4")[SERVER]
    wanted = directives(published)
    assert len(wanted) == 3
    for directive in wanted:
        # systemd takes what follows a value for part of it: the published comment has to stand on a line of its own.
        value, _, comment = directive.partition("   # ")
        assert value in directives(ours)
        assert comment in ours


@pytest.mark.programs
def test_systemd_reads_the_published_quota(tmp_path: Path) -> None:
    """With its comment behind it, as published, systemd drops the quota; rendered, it does not complain."""
    root = system(tmp_path, "int4")
    unit = root / "etc/systemd/system" / SERVER
    published = unit.read_text(encoding="utf-8").replace("CPUQuota=50%", "CPUQuota=50%   # 防止抢占 GPU 时钟")
    other = unit.with_name("published.service")
    other.write_text(published, encoding="utf-8")
    assert (
        "Invalid CPU quota"
        in analyze("verify", "--man=no", f"--root={root}", f"/etc/systemd/system/{other.name}").stderr
    )


@pytest.mark.parametrize("profile", profiles.available())
@pytest.mark.programs
def test_systemd_finds_nothing_wrong(tmp_path: Path, profile: str) -> None:
    root = system(tmp_path, profile)
    verified = analyze(
        "verify",
        "--man=no",
        f"--root={root}",
        *(f"/etc/systemd/system/{n}" for n in (SERVER, SIDECAR, BRIDGE)),
    )
    assert (verified.stderr, verified.returncode) == ("", 0)


@pytest.mark.parametrize("sources", [["tail:/run/omniwatch/events.jsonl"], ["journal:qwen3-omni.service"]])
@pytest.mark.programs
def test_the_sidecars_exposure_is_at_most_1_5(tmp_path: Path, sources: list[str]) -> None:
    root = system(tmp_path, "orin")
    text = render.render(Settings(sources=sources))[PurePosixPath("deploy/systemd") / SIDECAR]
    (root / "etc/systemd/system" / SIDECAR).write_text(text, encoding="utf-8")
    judged = analyze("security", "--no-pager", "--offline=yes", "--threshold=15", f"--root={root}", SIDECAR)
    assert judged.returncode == 0, judged.stdout[-3000:] + judged.stderr


@pytest.mark.programs
def test_the_bridges_exposure_is_at_most_1_5(tmp_path: Path) -> None:
    root = system(tmp_path, "orin")
    judged = analyze("security", "--no-pager", "--offline=yes", "--threshold=15", f"--root={root}", BRIDGE)
    assert judged.returncode == 0, judged.stdout[-3000:] + judged.stderr


def test_reload_needs_no_program_beside_the_shell():
    (line,) = [line for line in directives(rendered("orin")[SIDECAR]) if line.startswith("ExecReload=")]
    words = shlex.split(line.partition("=")[2].replace("$$", "$"))
    waits = (
        "import signal; signal.pthread_sigmask(0, [1]); print(flush=True); print(int(signal.sigwait([1])))"
    )
    with subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, text=True) as sidecar:
        assert sidecar.stdout is not None
        sidecar.stdout.readline()
        environment = {"PATH": "/nonexistent", "MAINPID": str(sidecar.pid)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        told = done.returncode == 0 or sidecar.kill()
        assert (told, done.stderr, words[0]) == (True, "", "/bin/sh")
        assert sidecar.stdout.read().strip() == str(int(signal.SIGHUP))


def test_the_sidecar_may_have_a_thread_for_each_connection() -> None:
    (tasks,) = [line for line in directives(rendered("orin")[SIDECAR]) if line.startswith("TasksMax=")]
    assert int(tasks.partition("=")[2]) >= MAX_CONNECTIONS + 32


def test_the_sidecar_may_do_what_it_has_to() -> None:
    unit = directives(rendered("orin")[SIDECAR])
    assert "WatchdogSec=30" in unit
    assert "MemoryMax=128M" in unit
    assert any(line.startswith("CPUQuota=") for line in unit)
    assert "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6" in unit
    assert "RuntimeDirectory=omniwatch-device" in unit, "it only reads /run/omniwatch, which tmpfiles.d makes"
    kept = [line for line in unit if line.startswith(("ProcSubset", "PrivateNetwork", "IPAddressDeny"))]
    assert kept == [], "each of these takes away something that is measured"
    assert not any("systemd-journal" in line for line in unit)


def test_a_journal_source_gives_the_sidecar_the_journals_group() -> None:
    files = render.render(Settings(sources=["journal:qwen3-omni.service"]))
    assert "SupplementaryGroups=systemd-journal" in directives(
        files[PurePosixPath("deploy/systemd") / SIDECAR]
    )


@pytest.mark.parametrize("profile", ["orin", "3b-int8-moe4"])
def test_a_model_server_has_no_quota_unless_its_profile_says_so(profile: str) -> None:
    unit = directives(rendered(profile)[SERVER])
    assert not [line for line in unit if line.startswith("CPUQuota")]
    assert "Restart=always" in unit
    assert "StartLimitBurst=5" in unit
    settings = 'Environment="OMNIWATCH_CONFIG=/etc/omniwatch/omniwatch.yaml"'
    assert (settings in unit) == (profiles.load(profile).runs == "process")


def test_the_container_runs_as_published() -> None:
    words = profiles.load("3b-int8-moe4").words()
    image = words.index("vllm/qwen3-omni:3b-int8-moe4")
    assert words[image + 1 :] == ["--max-model-len", "32768", "--trust-remote-code"]
    before = " ".join(words[:image])
    for published in (
        "docker run ",
        "--gpus all",
        "-p 8000:8000",
        "-e VLLM_MOE_EXPERT_SLICE=4",
        "-e VLLM_QUANT=int8",
    ):
        assert published in before
    assert "--cidfile " + Settings().server.container_id_file in before


def test_three_stages_share_one_gpu() -> None:
    profile = profiles.load("orin")
    shares = profiles.stage_shares(profile)
    files = rendered("orin")
    stages = yaml.safe_load(files["orin-stages.yaml"])
    assert sum(shares.values()) == pytest.approx(profile.claimed)
    assert {str(s["stage_id"]): s["gpu_memory_utilization"] for s in stages["stages"]} == shares
    assert {s["devices"] for s in stages["stages"]} == {"0"}
    chunks = stages["connectors"]["connector_of_shared_memory"]["extra"]
    assert (chunks["initial_codec_chunk_frames"], chunks["codec_chunk_frames"]) == (4, 4)


@pytest.mark.parametrize(
    ("profile", "device_gb", "fits"),
    [
        ("int4", 64, True),
        ("3b-int8-moe4", 64, True),
        ("3b-int8-moe4", 17, True),
        ("orin", 64, True),
        ("orin-int4", 64, True),
        ("orin-int4", 41, False),
        ("orin-text", 64, True),
        ("orin-text", 37, False),
        ("orin", 32, False),
    ],
)
def test_a_profile_that_does_not_fit_the_device_is_refused(
    profile: str, device_gb: float, fits: bool
) -> None:
    if fits:
        assert f"for a device with {device_gb} GB" in rendered(profile, device_memory_gb=device_gb)[SERVER]
        return
    with pytest.raises(
        render.RenderError, match=rf"profile {profile} does not fit: it takes \d+ GB .* {device_gb} GB"
    ):
        rendered(profile, device_memory_gb=device_gb)


def test_an_unknown_profile_is_named_with_those_there_are():
    with pytest.raises(
        render.RenderError,
        match='no profile "int8"; there are 3b-int8-moe4, int4, orin, orin-int4, orin-text',
    ):
        rendered("int8")


def recorded(name: str) -> str:
    with gzip.open(UNITS / name, "rt", encoding="utf-8") as text:
        return text.read()


FLAGS = profiles.known_flags(recorded("vllm-omni-0.30-help.txt.gz"))
VARIABLES = recorded("vllm-0.30-variables.txt.gz").split()


def test_the_flags_of_a_real_vllm_are_read_from_its_help() -> None:
    assert {
        "--omni",
        "--config",
        "--no-enable-log-requests",
        "--stage-overrides",
        "--tensor-parallel-size",
    } <= FLAGS
    assert not any("DEPLOY" in flag or flag.endswith("-") for flag in FLAGS)


def test_every_flag_that_the_installed_vllm_does_not_know_is_named_with_its_closest_real_one() -> None:
    said = {name: profiles.unknown(profiles.load(name), FLAGS, VARIABLES) for name in profiles.available()}
    assert said == {
        "3b-int8-moe4": [
            "VLLM_MOE_EXPERT_SLICE: the installed vLLM does not know it; "
            "the closest is --enable-expert-parallel (experts cannot be left out at start-up)",
            "VLLM_QUANT: the installed vLLM does not know it; "
            "the closest is --quantization (the bits stand in the checkpoint's own configuration)",
        ],
        "int4": [
            "--disable-talker: the installed vLLM does not know it; "
            "the closest is --deploy-config (a deploy file without the talker, or the request's modalities)"
        ],
        "orin": [],
        "orin-int4": [],
        "orin-text": [],
    }


def test_a_slip_of_the_pen_is_named_with_the_flag_that_was_meant() -> None:
    profile = msgspec.structs.replace(
        profiles.load("orin"), command=["/usr/bin/vllm", "--max-model-length=4096"]
    )
    assert profiles.unknown(profile, FLAGS) == [
        "--max-model-length: the installed vLLM does not know it; the closest is --max-model-len"
    ]


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """A stand-in that prints the recorded help of a real one."""
    (tmp_path / "help.txt").write_text(recorded("vllm-omni-0.30-help.txt.gz"), encoding="utf-8")
    program = tmp_path / "vllm-omni"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "serve --omni --help=all" ] && cat {tmp_path}/help.txt\n', encoding="utf-8"
    )
    program.chmod(0o755)
    return program


def test_an_installed_vllm_is_asked_for_its_flags(tmp_path: Path, vllm: Path) -> None:
    assert profiles.ask(vllm) == (FLAGS, [])
    with pytest.raises(profiles.ProfileError, match="Permission denied"):
        profiles.ask(tmp_path / "help.txt")
    with pytest.raises(profiles.ProfileError, match="names no flags; is it vllm-omni"):
        profiles.ask(Path("/bin/true"))


def test_check_fails_for_a_profile_that_the_installed_vllm_cannot_start(tmp_path: Path, vllm: Path) -> None:
    (tmp_path / "omniwatch.yaml").write_text("server: {profile: int4}", encoding="utf-8")
    config = str(tmp_path / "omniwatch.yaml")
    result = CliRunner().invoke(main, ["check", "--config.file", config, "--vllm", str(vllm)])
    assert "FAILED: vLLM: int4: --disable-talker: the installed vLLM does not know it" in result.output
    assert result.exit_code == 1
