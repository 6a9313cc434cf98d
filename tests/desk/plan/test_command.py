"""The command: what it prints, its exit codes, and the one line that every trouble is."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from helpers.checkpoints import made
from omniwatch.cli import main
from omniwatch.desk.plan import disk, ladder, picture, planning, startup
from omniwatch.desk.plan.components import parse_types
from omniwatch.desk.plan.device import DEVICES, of_size
from omniwatch.desk.plan.memory import Wanted, compute
from omniwatch.desk.plan.model import PlanError
from omniwatch.desk.plan.released import RELEASED

LOG = """\
(StageEngineCoreProc_stage0_replica0 pid=10) INFO 11-22 03:50:47 [gpu_model_runner.py:5416] Model loading took 17.75 GiB memory and 31.1 seconds
(StageEngineCoreProc_stage1_replica0 pid=11) INFO 11-22 03:51:47 [gpu_model_runner.py:5416] Model loading took 6.19 GiB memory and 9.1 seconds
(StageEngineCoreProc_stage0_replica0 pid=10) INFO 11-22 03:52:40 [gpu_worker.py:890] Free memory on device (50.1/61.4 GiB) on startup. Desired GPU memory utilization is (0.45, 27.6 GiB). Actual usage is 18.5 GiB for consumed memory (weights + non-torch), 1.25 GiB for peak activation, and 0.25 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with
"""


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments], input=stdin)


def test_it_fits_or_not_by_exit_code() -> None:
    small = run("--quantization", "thinker=int4", "--streams", "2")
    assert (small.exit_code, small.stderr) == (0, "")
    assert small.stdout.splitlines()[0].endswith("Jetson AGX Orin 64 GB: fits, 24.5 GB spare")
    whole = run()
    assert whole.exit_code == 1
    assert "does not fit, 16.0 GB too much" in whole.stdout
    assert (
        "cheapest change that fits: --quantization thinker=int8 (thinker in int8): 48.48 GB" in whole.stdout
    )


def test_the_table_has_all_that_is_counted() -> None:
    text = run("--quantization", "int8").stdout
    for words in (
        "code predictor",
        "141,570,304",
        "35,259,818,545",
        "38.12",
        "118,784 B a token",
        "(assumed)",
    ):
        assert words in text


def test_json_is_the_plan_itself() -> None:
    done = run("--quantization", "int4", "--device", "orin-32", "--json")
    read = msgspec.json.decode(done.stdout, type=planning.Plan)
    wanted = Wanted(
        name=read.result.name, model=RELEASED, device=DEVICES["orin-32"], types=parse_types(["int4"])
    )
    assert read == planning.plan(wanted)
    assert (done.exit_code, read.result.fits) == (1, False)


def test_each_part_keeps_its_own_number_of_experts() -> None:
    done = run("--experts", "thinker=64,talker=96", "--json")
    result = msgspec.json.decode(done.stdout, type=planning.Plan).result
    assert (result.experts, result.talker_experts) == (64, 96)
    sizes = {part.name: part.bytes for part in result.components}
    assert sizes["thinker_experts"] == 57_982_058_496 // 2
    assert sizes["talker_experts"] == 6_039_797_760 * 3 // 4
    alone = msgspec.json.decode(run("--experts", "talker=96", "--json").stdout, type=planning.Plan).result
    assert (alone.experts, alone.talker_experts) == (128, 96)


def test_the_ladder_goes_down_step_by_step() -> None:
    wanted = Wanted(name="", model=RELEASED, device=DEVICES["orin-64"], streams=2)
    steps = list(ladder.rungs(wanted))
    needed = [step.needed_bytes for step in steps]
    assert needed == sorted(needed, reverse=True)
    assert all(b.saved_bytes == a.needed_bytes - b.needed_bytes for a, b in itertools.pairwise(steps))
    # The published steps, 79 -> 38 -> 21 -> 13: half the experts, then INT8, then INT4.
    half = next(row for row in ladder.slices(wanted) if row.experts == 64)
    assert [round(half.bytes[name] / 1e9, 1) for name in ("bf16", "int8", "int4 both")] == [38.5, 21.8, 13.4]
    text = run("--ladder", "--streams", "2")
    assert "thinker in int4" in text.stdout
    assert "     64  19,246,752,305  38.49  21.85" in text.stdout


def test_flags_are_a_script_whose_deploy_file_is_whole(tmp_path: Path) -> None:
    done = run("--quantization", "thinker=int4", "--streams", "2", "--kv-cache-dtype", "fp8", "--flags")
    assert done.exit_code == 0
    script = tmp_path / "serve.sh"
    # What would be started is printed in its place.
    script.write_text(done.stdout.replace("exec /opt/vllm-omni/bin/vllm-omni", "exec printf '%s\\n'"))
    ran = subprocess.run(
        ["sh", str(script), "--port", "9"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    words = ran.stdout.splitlines()
    assert words[:3] == ["serve", "/opt/qwen3-omni", "--omni"]
    assert words[-2:] == ["--port", "9"]
    pairs = dict(zip(words[3:-2:2], words[4:-2:2], strict=True))
    assert pairs["--kv-cache-dtype"] == "fp8"
    assert pairs["--max-num-seqs"] == "2"
    assert pairs["--middleware"] == "omniwatch.tap.Tap"
    deploy = yaml.safe_load((tmp_path / pairs["--deploy-config"]).read_text())
    shares = {str(stage["stage_id"]): stage["gpu_memory_utilization"] for stage in deploy["stages"]}
    assert {
        key: value["gpu_memory_utilization"] for key, value in json.loads(pairs["--stage-overrides"]).items()
    } == shares
    result = planning.plan(
        Wanted(
            name="",
            model=RELEASED,
            device=DEVICES["orin-64"],
            types=parse_types(["thinker=int4"]),
            streams=2,
            kv_type="fp8",
        )
    ).result
    assert shares == {str(stage.id): stage.share for stage in result.stages}
    assert all(s.share * result.device.memory_bytes >= s.needed_bytes for s in result.stages)
    assert {stage["devices"] for stage in deploy["stages"]} == {"0"}
    chunks = deploy["connectors"]["connector_of_shared_memory"]["extra"]
    assert (chunks["initial_codec_chunk_frames"], chunks["codec_chunk_frames"]) == (4, 4)


def test_flags_for_what_does_not_fit_there_are_none() -> None:
    done = run("--flags")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no flags: it does not fit, 16.0 GB too much" in done.stderr


def test_a_thinker_alone_has_a_pipeline_of_its_own() -> None:
    text = run("--no-talker", "--quantization", "int4", "--flags").stdout
    assert "pipeline: qwen3_omni_moe_thinker_only" in text
    assert "connectors" not in text


def test_flags_are_checked_by_the_vllm_that_is_named(tmp_path: Path) -> None:
    vllm = tmp_path / "vllm-omni"
    vllm.write_text("#!/bin/sh\necho '  --omni'; echo '  --deploy-config X'; echo '  --stage-overrides X'\n")
    vllm.chmod(0o755)
    done = run("--quantization", "int4", "--flags", "--vllm", str(vllm))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--max-model-len: the installed vLLM does not know it" in done.stderr


def test_start_up_lines_replace_what_is_assumed(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    found = startup.parse(LOG.splitlines())
    assert found.keys() == {"thinker"}, "the talker's start is not whole"
    thinker = found["thinker"]
    assert thinker.context_bytes == round((18.5 - 17.75 + 0.25) * 2**30)
    assert thinker.activation_bytes == round(1.25 * 2**30)
    for done in (
        run("--startup-log", str(tmp_path / "log"), "--json"),
        run("--startup-log", "-", "--json", stdin=LOG),
    ):
        stages = msgspec.json.decode(done.stdout, type=planning.Plan).result.stages
        assert [stage.measured for stage in stages] == [True, False, False]
        assert stages[0].activation_bytes == thinker.activation_bytes
    assert "no start-up lines" in run("--startup-log", "-", stdin="nothing\n").stderr


def test_the_picture_stacks_all_that_is_needed(tmp_path: Path) -> None:
    result = compute(Wanted(name="", model=RELEASED, device=DEVICES["orin-64"]))
    assert sum(size for _, _, size in picture.parts(result)) == result.needed_bytes + result.system_bytes
    assert {key for key, _, _ in picture.parts(result)} <= picture.COLOURS.keys()
    drawn = run("--plot", str(tmp_path / "plan.svg"))
    assert drawn.exit_code == 1
    first = (tmp_path / "plan.svg").read_bytes()
    assert b"<svg" in first
    run("--plot", str(tmp_path / "plan.svg"))
    assert (tmp_path / "plan.svg").read_bytes() == first
    refused = run("--plot", str(tmp_path / "plan.pdf"))
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_a_disk_is_measured_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"0" * 1000)
    with pytest.raises(PlanError, match="no file of at least 64 MiB"):
        disk.largest(tmp_path)
    with (tmp_path / "large").open("wb") as file:
        file.write(bytes(disk.LEAST_BYTES + 4096 + 1))
    assert disk.largest(tmp_path) == tmp_path / "large"
    told: list[tuple[int, int]] = []
    speed = disk.measure(tmp_path / "large", lambda done, total: told.append((done, total)))
    assert speed.bytes == disk.LEAST_BYTES + 4096 == told[-1][0]
    assert speed.bytes_s > 0
    half = disk.measure(tmp_path / "large", lambda done, total: None, most_bytes=disk.BLOCK)
    assert half.bytes == disk.BLOCK
    done = run("--quantization", "int4", "--measure-disk", str(tmp_path), "--json")
    said = json.loads(done.stdout)
    thinker = said["reloads"][0]
    assert thinker["seconds"] == pytest.approx(thinker["bytes"] / said["bytes_s"])
    assert "thinker's weights" in run("--quantization", "int4", "--measure-disk", str(tmp_path)).stdout


def test_a_checkpoint_is_planned_from_its_headers(tmp_path: Path) -> None:
    _, size = made(tmp_path)
    done = run(str(tmp_path), "--device-memory-gb", "16", "--json")
    assert msgspec.json.decode(done.stdout, type=planning.Plan).result.weights_bytes == size


@pytest.mark.parametrize("name", ["int4", "orin", "orin-int4", "orin-text"])
def test_a_profile_is_planned(name: str) -> None:
    done = run("--profile", name)
    assert done.exit_code == 0
    assert "fits" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--profile", "3b-int8-moe4"], "nothing to compute: 4 of 16 experts"),
        (["--profile", "none"], 'no profile "none"'),
        (["--profile", "int4", "--streams", "2"], "--profile says what runs"),
        (["--experts", "4"], "chooses 8 of them for a token"),
        (["--experts", "talker=5"], "talker has 128 a layer and chooses 6"),
        (["--experts", "talker=96", "--no-talker"], "the parts with experts are thinker"),
        (["--experts", "thinker=64,thinker=32"], "thinker twice"),
        (["--experts", ""], "expected a number such as 96, or thinker=64,talker=96"),
        (["--experts", "1e2"], "expected a number such as 96"),
        (["--quantization", "int5"], '"int5": expected bf16'),
        (["--device", "thor", "--device-memory-gb", "8"], "exclude each other"),
        (["--ladder", "--flags"], "exclude each other"),
        (["--vllm", "vllm-omni"], "--vllm checks what --flags prints"),
        (["--device-memory-gb", "nan"], "nan"),
        (["/nowhere"], "/nowhere: No such file or directory"),
        (["--measure-disk", "/nowhere"], "/nowhere: not a directory"),
    ],
)
def test_what_does_not_hold_is_one_line_and_exit_code_2(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr.splitlines()[-1]


def test_this_device_is_measured() -> None:
    done = run("--device", "here", "--quantization", "int4", "--no-talker", "--json")
    (kilobytes,) = [
        line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line
    ]
    assert json.loads(done.stdout)["result"]["device"]["memory_bytes"] == int(kilobytes) * 1024
    assert json.loads(done.stdout)["bound"] is None, "its bandwidth is unknown"


@pytest.mark.slow
def test_it_imports_no_torch_and_no_matplotlib() -> None:
    code = (
        "import sys; from omniwatch.cli import main\n"
        "try: main(['plan', '--ladder'], standalone_mode=False)\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'matplotlib', 'safetensors') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_device_of_any_size() -> None:
    assert of_size(16.5).memory_bytes == 16_500_000_000
