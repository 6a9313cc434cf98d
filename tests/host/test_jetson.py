"""An Orin's sysfs as JetPack 5, 6 and 7 lay it out, and machines that are no Jetson."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.paths import DATA
from helpers.trees import grow
from omniwatch.host.jetson import Reader
from omniwatch.settings import Settings

JETSON = DATA / "jetson"


def orin(tmp_path: Path, release: int) -> Path:
    return grow(tmp_path, (JETSON / f"jetpack{release}.tree").read_text(encoding="utf-8"))


def scrape(reader: Reader) -> dict[str, float]:
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in reader.collect()
        for sample in family.samples
    }


def test_jetpack_5(tmp_path: Path) -> None:
    found = scrape(Reader(Settings(), orin(tmp_path, 5)))
    assert found["jetson_gpu_load_ratio"] == 0.631
    assert found["jetson_gpu_frequency_hertz"] == 1_300_500_000
    assert found["jetson_l4t_info 35.3.1"] == 1
    assert found["jetson_nvpmodel_info 0 MAXN"] == 1
    assert found["jetson_cpus_online"] == 12
    assert found["jetson_nvmap_used_bytes"] == 774180 * 1024
    rails = {name: round(value, 3) for name, value in found.items() if "rail_power" in name}
    assert rails == {
        "jetson_rail_power_watts VDD_GPU_SOC": 23.386,
        "jetson_rail_power_watts VDD_CPU_CV": 1.611,
        "jetson_rail_power_watts VIN_SYS_5V0": 4.027,
        "jetson_rail_power_watts VDDQ_VDD2_1V8AO": 0.301,
    }
    zones = {name.split()[1]: value for name, value in found.items() if "thermal_celsius" in name}
    assert zones == {
        "cpu": 44.562,
        "soc0": 41.093,
        "soc1": 41.25,
        "soc2": 40.093,
        "tj": 44.343,
        "tboard_tegra": 32,
        "tdiode_tegra": 33,
    }, "a sensor that is switched off (-256) is absent"


def test_jetpack_6_idle_gpu_is_0_and_its_gated_zone_absent(tmp_path: Path) -> None:
    found = scrape(Reader(Settings(), orin(tmp_path, 6)))
    assert found["jetson_gpu_load_ratio"] == 0
    assert found["jetson_thermal_celsius cpu"] == 52.562
    assert "jetson_thermal_celsius gpu" not in found
    assert found["jetson_l4t_info 36.4.4"] == 1
    assert found["jetson_soctherm_oc_events_total oc3"] == 7601
    assert found["jetson_throttle_alert soc0"] == 0
    assert "jetson_throttle_alert pwm-fan" not in found


def test_jetpack_7_hot_and_throttled(tmp_path: Path) -> None:
    found = scrape(Reader(Settings(), orin(tmp_path, 7)))
    assert found["jetson_gpu_load_ratio"] == 0.985
    assert found["jetson_throttle_alert gpu"] == 1
    assert found["jetson_rail_alarm VDD_GPU_SOC max"] == 1
    assert found["jetson_rail_alarm VDD_GPU_SOC crit"] == 0
    assert found["jetson_soctherm_oc_events_total oc2"] == 31
    assert found["jetson_thermal_trip_celsius gpu passive"] == 99
    assert found["jetson_thermal_trip_celsius gpu critical"] == 104.5
    assert found["jetson_nvpmodel_info 2 MODE_30W"] == 1
    assert found["jetson_cpus_online"] == 8
    assert found["jetson_l4t_info 39.2.0"] == 1


def test_a_gpu_that_appears_late_is_found_at_the_next_scrape(tmp_path: Path) -> None:
    root = orin(tmp_path, 7)
    node, late = root / "sys/class/devfreq/17000000.gpu", root / "sys/class/late"
    platform = root / "sys/devices/platform/bus@0/17000000.gpu"
    node.rename(late)
    platform.rename(root / "sys/hidden")
    reader = Reader(Settings(), root)
    assert "jetson_gpu_load_ratio" not in scrape(reader), "absent, not 0"
    (root / "sys/hidden").rename(platform)
    assert scrape(reader)["jetson_gpu_load_ratio"] == 0.985, "by its platform device, without devfreq"
    late.rename(node)
    assert scrape(reader)["jetson_gpu_frequency_hertz"] == 624_750_000


def test_numbers_of_hwmon_and_zones_may_change_between_scrapes(tmp_path: Path) -> None:
    root = orin(tmp_path, 6)
    reader = Reader(Settings(), root)
    before = scrape(reader)
    hwmon, thermal = root / "sys/class/hwmon", root / "sys/class/thermal"
    (hwmon / "hwmon2").rename(hwmon / "hwmon9")
    (thermal / "thermal_zone0").rename(thermal / "thermal_zone77")
    assert scrape(reader) == before


@pytest.mark.parametrize("release", [5, 6, 7])
def test_a_file_that_holds_no_number_takes_only_its_own_series_away(tmp_path: Path, release: int) -> None:
    root = orin(tmp_path, release)
    reader = Reader(Settings(), root)
    before = scrape(reader)
    zone = root / "sys/class/thermal/thermal_zone0/temp"
    zone.write_text("", encoding="utf-8")
    gone = set(before) - set(scrape(reader))
    assert gone == {
        "jetson_thermal_celsius cpu",
        "jetson_thermal_trip_celsius cpu passive",
        "jetson_thermal_trip_celsius cpu critical",
    }


def test_nothing_is_said_on_a_machine_that_is_no_jetson(tmp_path: Path) -> None:
    root = orin(tmp_path, 6)
    (root / "proc/device-tree/compatible").write_text(
        "raspberrypi,4-model-b\0brcm,bcm2711\0", encoding="utf-8"
    )
    (root / "etc/nv_tegra_release").unlink()
    (root / "sys/devices/soc0/family").write_text("BCM2711\n", encoding="utf-8")
    assert scrape(Reader(Settings(), root)) == {}


@pytest.mark.parametrize("mark", ["proc/device-tree/compatible", "etc/nv_tegra_release"])
def test_a_yocto_image_or_a_container_is_still_a_jetson(tmp_path: Path, mark: str) -> None:
    root = orin(tmp_path, 5)
    (root / mark).unlink()
    assert scrape(Reader(Settings(), root))["jetson_gpu_load_ratio"] == 0.631


def test_an_unknown_power_mode_keeps_its_number(tmp_path: Path) -> None:
    root = orin(tmp_path, 6)
    (root / "var/lib/nvpmodel/status").write_text("pmode:0007\n", encoding="utf-8")
    assert scrape(Reader(Settings(), root))["jetson_nvpmodel_info 7 "] == 1
