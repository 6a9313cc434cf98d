"""A sample of the device, from trees as kernels and boards have them."""

from __future__ import annotations

from pathlib import Path

from omniwatch.core.samples import Sample
from omniwatch.host.sample import Sampler
from omniwatch.settings import Settings


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_machine_that_says_nothing(tmp_path):
    assert Sampler(Settings(), tmp_path)(5.0, 2) == Sample(5.0, 2)


def test_memory_by_pressure_swap_and_reclaim(tmp_path):
    write(tmp_path, proc__vmstat="pswpin 42\nallocstall_normal 3\nallocstall_movable 4\nother 1\n")
    assert Sampler(Settings(), tmp_path)(1.0, 1) == Sample(1.0, 1, swapped=42, reclaims=7)
    psi = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=7\n"
    write(tmp_path, proc__pressure__memory=psi)
    assert Sampler(Settings(), tmp_path)(1.0, 1).stalled_s == 2.5


def test_time_throttled_of_the_server_and_the_slices_it_is_in(tmp_path):
    base = "sys__fs__cgroup__"
    write(
        tmp_path,
        **{
            f"{base}cgroup.controllers": "cpu memory",
            f"{base}system.slice__cpu.stat": "usage_usec 9\nthrottled_usec 500000\n",
            f"{base}system.slice__qwen3-omni.service__cpu.stat": "usage_usec 9\nthrottled_usec 1250000\n",
        },
    )
    assert Sampler(Settings(), tmp_path)(1.0, 1).throttled_s == 1.75


def board(root: Path, alert: int, events: int) -> None:
    thermal, chip = "sys__class__thermal__", "sys__class__hwmon__hwmon1__"
    write(
        root,
        **{
            f"{thermal}cooling_device0__type": "pwm-fan",
            f"{thermal}cooling_device0__cur_state": "3",
            f"{thermal}cooling_device1__type": "gpu-throttle-alert",
            f"{thermal}cooling_device1__cur_state": f"{alert}",
            f"{chip}name": "soctherm_oc",
            f"{chip}oc1_event_cnt": f"{events}",
            "sys__class__devfreq__gpu__cur_freq": "650000000",
            "sys__class__devfreq__gpu__max_freq": "1300000000",
            "sys__devices__system__cpu__cpufreq__policy0__scaling_cur_freq": "1100000",
            "sys__devices__system__cpu__cpufreq__policy0__cpuinfo_max_freq": "2200000",
        },
    )


def test_slow_clocks_count_only_while_heat_or_power_holds_them_down(tmp_path):
    sampler = Sampler(Settings(), tmp_path)
    board(tmp_path, alert=0, events=7)
    assert sampler(1.0, 1).clock == 1.0, "idle clocks are slow, too, and so runs a fan"
    board(tmp_path, alert=1, events=7)
    assert sampler(2.0, 1).clock == 0.5
    board(tmp_path, alert=0, events=8)
    assert sampler(3.0, 1).clock == 0.5, "over-current"
    assert sampler(4.0, 1).clock == 1.0, "it is over"
