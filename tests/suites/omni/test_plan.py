"""What `omniwatch plan` computes of the tiny checkpoint, cut by `omniwatch slice`, and what the running server says of it.

The server is the one that `plan --flags` starts. It speaks as the whole model's server does.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.waiting import wait_until
from omniwatch.desk.child_process import get
from omniwatch.desk.plan import flags, planning, startup
from omniwatch.desk.plan.device import of_size
from omniwatch.desk.plan.memory import Result, Wanted, compute
from omniwatch.events import encode
from suites.omni.installation import Say, directory, install
from suites.omni.listening import RATE_HZ, chat, realtime
from suites.omni.server import ENVIRONMENT, Omni, following, started
from suites.omni.slices import KEPT, cut
from suites.omni.turns import finished, spoken

TOKENS, STREAMS = 2048, 4


@pytest.fixture(scope="module")
def model(say: Say, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three of four experts are left in the thinker, two in the talker."""
    install(directory(), say)
    return cut(directory() / "model", tmp_path_factory.mktemp("cut"), KEPT)


@pytest.fixture(scope="module")
def result(model: Path) -> Result:
    name, config, weights = planning.read(model)
    wanted = Wanted(
        name=name, model=config, weights=weights, device=of_size(24), streams=STREAMS, max_model_len=TOKENS
    )
    return compute(wanted)


@pytest.fixture(scope="module")
def planned(model: Path, tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[tuple[Omni, str]]:
    """The server as `plan --flags` has it started, and its log."""
    folder = tmp_path_factory.mktemp("planned")
    command = [sys.executable, "-m", "omniwatch", "plan", str(model), "--device-memory-gb", "24", "--flags"]
    command += ["--max-model-len", str(TOKENS), "--streams", str(STREAMS)]
    command += ["--vllm", str(directory() / "venv" / "bin" / "vllm-omni")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "knows every flag" in done.stderr
    script = folder / "serve.sh"
    script.write_text(done.stdout)
    # Graphs are a GPU's; the rest of the command is the script's own.
    with started(["sh", str(script), "--enforce-eager"], folder, say) as up:
        yield up, (folder / "vllm-omni.log").read_text(errors="replace")


def test_the_weights_are_the_tensors_bytes(model: Path, result: Result) -> None:
    """Counted here from the file itself: all that is behind its header."""
    size = 0
    for file in model.glob("*.safetensors"):
        (length,) = struct.unpack("<Q", file.read_bytes()[:8])
        header = json.loads(file.read_bytes()[8 : 8 + length])
        size += sum(
            e["data_offsets"][1] - e["data_offsets"][0] for n, e in header.items() if n != "__metadata__"
        )
    assert result.weights_bytes == size > 0
    assert all(part.exact for part in result.components)
    assert result.notes == []


def test_the_parameters_by_config_are_the_tensors(result: Result) -> None:
    assert result.parameters * 2 == result.weights_bytes


def test_the_flags_start_the_server(planned: tuple[Omni, str]) -> None:
    omni, _ = planned
    assert omni.metric("vllm_omni:num_requests_running") == 0


def test_a_token_takes_what_the_server_says(planned: tuple[Omni, str], result: Result) -> None:
    """The server divides the memory that it was given into blocks, and says for how many tokens they are."""
    _, log = planned
    given = int(ENVIRONMENT["VLLM_CPU_KVCACHE_SPACE"]) * 2**30
    tokens = {
        number: int(said.replace(",", ""))
        for number, said in re.findall(r"stage(\d)\S* pid=\d+\).*KV cache size: ([\d,]+) tokens", log)
    }
    computed = {str(stage.id): stage.kv_bytes_per_token for stage in result.stages if stage.kv_bytes}
    assert tokens.keys() == computed.keys() == {"0", "1"}
    for stage, per_token in computed.items():
        # Whole blocks only: what is left over is less than one of them, of 128 tokens.
        assert 0 <= given - tokens[stage] * per_token < 128 * per_token, (stage, tokens[stage], per_token)


def test_the_config_has_other_numbers_in_each_part(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    assert config["thinker_config"]["text_config"]["num_experts"] == 3
    assert config["talker_config"]["text_config"]["num_local_experts"] == 2


def test_the_cut_model_speaks_and_the_tap_has_each_sample(planned: tuple[Omni, str]) -> None:
    omni, _ = planned
    before = set(omni.streams())
    with chat(omni.port, {"X-Omni-Stream": "cut"}) as speech:
        received = list(speech)
    events, end = finished(omni, "chat", before)
    assert len(received) > 1
    assert [event.dur_ms * RATE_HZ / 1000 for event in spoken(events)] == pytest.approx(received, abs=1e-6)
    assert end.reason == "completed"


OBSERVED = ('omni_token_rtt_seconds_count{vantage="server"} 1.0', "omni_turn_drift_worst_seconds_count 1.0")
"""What the sidecar has of a turn that is over, of either curve. So few experts may say so little that no curve is seen meanwhile."""


def test_both_its_curves_are_measured(
    planned: tuple[Omni, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    omni, _ = planned
    before = set(omni.streams())
    with realtime(omni.port) as speech:
        assert sum(speech) > 0
        events, _ = finished(omni, "realtime", before)
    spool = tmp_path_factory.mktemp("spool") / "events.jsonl"
    spool.write_bytes(b"".join(encode(event) for event in events))
    with following(spool, spool.parent) as sidecar:
        wait_until(
            lambda: all(line in get(sidecar.url + "/metrics").decode() for line in OBSERVED), timeout=60
        )


def test_the_servers_own_lines_name_its_stages(planned: tuple[Omni, str]) -> None:
    _, log = planned
    assert {"0", "1"} <= set(re.findall(startup.STAGE, log))
    assert flags.TAP in log
