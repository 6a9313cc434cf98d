"""What is read of memory and energy: processes of known size, a made-up device, power of known shape."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.trees import grow as grow_text
from omniwatch.desk.chain import ChainError, Level
from omniwatch.desk.chain.kv import read
from omniwatch.desk.chain.watch import Watched, energy, find, open_watch, parse

MB = 10**6


def grow(root: Path, files: dict[str, str]) -> None:
    grow_text(
        root,
        "\n".join(f"{name}: {content!r}"[:-1].replace(": '", ": ", 1) for name, content in files.items()),
    )


HOLDER = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; x = bytearray(b'1') * 60_000_000; print('up', flush=True); input()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("up", flush=True)
for line in sys.stdin:
    held = bytearray(b"1") * 200_000_000
    del held
    print("done", flush=True)
child.communicate(b"\\n")
"""


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """A server that takes 200 MB for a moment when it is asked, beside a child that holds 60 MB."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.communicate()


def test_a_peak_between_two_looks_is_seen(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    assert holder.stdout is not None
    watch = open_watch([Watched("native", str(holder.pid))])
    watch.period_s = 3600.0
    with watch:
        holder.stdin.write("ask\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "done\n"
    (found,) = watch.memory(lambda chain: 50 * MB)
    assert found.before_bytes is not None
    assert found.held_bytes is not None
    assert found.before_bytes > 60 * MB
    # What an interpreter itself holds changes meanwhile, by the pages that it shares with others.
    assert (found.held_bytes - found.before_bytes) / (200 * MB) == pytest.approx(1, rel=0.5)
    assert found.needed_bytes == found.held_bytes - 50 * MB
    (unknown,) = watch.memory(lambda chain: None)
    assert unknown.needed_bytes is None
    assert "no server of the chain states the size" in (unknown.note or "")


@pytest.mark.parametrize("text", ["", "native", "native=", "both=1", "=1"])
def test_what_cannot_be_watched_is_said(text: str) -> None:
    with pytest.raises(ChainError, match=r"--watch: expected native= or cascade="):
        parse(text)


@pytest.mark.parametrize("what", ["999999999", "nowhere.service", "0123456789ab"])
def test_what_is_not_there_is_said(what: str, tmp_path: Path) -> None:
    with pytest.raises(ChainError, match=f"--watch native={what}: no such"):
        find(Watched("native", what), tmp_path)


def test_a_unit_is_read_without_its_caches_of_files(tmp_path: Path) -> None:
    unit = "sys/fs/cgroup/system.slice/qwen3-omni.service"
    grow(
        tmp_path,
        {
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            f"{unit}/cgroup.procs": "1\n",
            f"{unit}/memory.current": "5000000\n",
            f"{unit}/memory.stat": "anon 1\ninactive_file 2000000\n",
        },
    )
    found = find(Watched("native", "qwen3-omni.service"), tmp_path)
    assert found.now_bytes() == 3_000_000


def test_energy_is_the_area_under_each_rail() -> None:
    """A ramp from 10 to 20 W in ten seconds, of which 2.5 to 7.5 s are asked: 75 J."""
    ramp = [(float(t), {"VDD_GPU": 10.0 + t, "VIN": 5.0}) for t in range(11)]
    assert energy(ramp, 2.5, 7.5) == pytest.approx({"VDD_GPU": 75.0, "VIN": 25.0})
    assert energy(ramp, 20.0, 30.0) == {}


def test_a_jetson_gives_its_rails_and_its_gpus_memory(tmp_path: Path) -> None:
    chip = "sys/class/hwmon/hwmon3"
    grow(
        tmp_path,
        {
            "proc/device-tree/compatible": "nvidia,tegra234",
            "proc/meminfo": "MemTotal: 1 kB\nNvMapMemUsed: 1000 kB\n",
            f"{chip}/name": "ina3221",
            f"{chip}/in1_label": "VDD_GPU_SOC",
            f"{chip}/in1_input": "5000",
            f"{chip}/curr1_input": "2000",
        },
    )
    now = [0.0]
    watch = open_watch([], tmp_path)
    watch.clock, watch.period_s = (lambda: now[0]), 3600.0
    with watch:
        now[0] = 4.0
        (tmp_path / "proc/meminfo").write_text("NvMapMemUsed: 3000 kB\n")
        watch.look()
        now[0] = 6.0
    levels = [
        Level(chain="native", concurrency=1, start_s=1.0, end_s=4.5),
        Level(chain="cascade", concurrency=1, start_s=4.5, end_s=5.5),
    ]
    native, cascade = watch.devices(levels, {"native": 7, "cascade": 1}, 0.0)
    assert native.rails_joules == pytest.approx({"VDD_GPU_SOC": 35.0})
    assert (native.gpu_before_bytes, native.gpu_held_bytes, native.turns) == (1_024_000, 3_072_000, 7)
    assert cascade.rails_joules == pytest.approx({"VDD_GPU_SOC": 10.0})


def test_vllms_metrics_give_the_cache_and_its_use() -> None:
    """Lines as vLLM 0.32 prints them."""
    text = (
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{engine="0",kv_cache_memory_bytes="1073741824",num_gpu_blocks="32768"} 1.0\n'
        "# TYPE vllm:kv_cache_usage_perc gauge\n"
        'vllm:kv_cache_usage_perc{stage="0"} 0.25\n'
        'vllm:kv_cache_usage_perc{stage="1"} 0.125\n'
    )
    assert read(text) == (0.25, 1_073_741_824)
    assert read(text.replace('"1073741824"', '"None"')) == (0.25, None)
    assert read("") == (None, None)
