"""A night in which the model server is restarted and the sidecar upgraded: all rules of a device, and nobody is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.bundles import hold, rendered, sample
from omniwatch.settings import Settings

EVERY_S, BEFORE, AFTER = 5, 120, 360
SERVER = 'instance="orin:8000",device="orin",job="model_server"'
SIDECAR = 'instance="orin:9842",device="orin",job="omniwatch"'
UNIT = f'{SIDECAR},unit="qwen3-omni.service"'
TOLD = 'count by (alertname, cause) (last_over_time(ALERTS{alertstate="firing",severity!="none"}[1h]))'


def night(loads: int) -> dict[str, str]:
    """The series of a device that nobody speaks with: its server loads for so many scrapes, its sidecar is away for two."""
    over = AFTER + loads
    whole = BEFORE + over
    counted = f"5000x{BEFORE} 0x{over}"
    return {
        f"up{{{SERVER}}}": f"1x{BEFORE} 0x{loads} 1x{AFTER}",
        f"up{{{SIDECAR}}}": f"1x{BEFORE + 20} 0x2 1x{over - 23}",
        **{f'up{{instance="{job}",device="orin",job="{job}"}}': f"1x{whole}" for job in ("prometheus", "alertmanager")},
        f'omni_server_unit_state{{{UNIT},state="active"}}': f"1x{whole}",
        f"omni_server_unit_start_time_seconds{{{UNIT}}}": f"-86400x{BEFORE} {(BEFORE + 1) * EVERY_S}x{over}",
        f"omni_server_unit_restarts_total{{{UNIT}}}": f"0x{whole}",
        f'omniwatch_source_up{{{SIDECAR},source="tail:events.jsonl"}}': f"1x{whole}",
        f'omniwatch_source_last_event_timestamp_seconds{{{SIDECAR},source="tail:events.jsonl"}}': f"-18000x{whole}",
        f'omniwatch_source_free_bytes{{{SIDECAR},source="tail:events.jsonl"}}': f"1000000000x{whole}",
        f'omniwatch_events_total{{{SIDECAR},ev="audio",source="tail:events.jsonl"}}': counted,
        f'omni_turns_total{{{SIDECAR},outcome="completed"}}': counted,
        f'omni_turns_total{{{SIDECAR},outcome="failed"}}': f"7x{BEFORE} 0x{over}",
        f'vllm_omni:requests_success_total{{{SERVER},model_name="omni",finished_reason="stop"}}': counted,
        f'vllm_omni:requests_failed_total{{{SERVER},model_name="omni",reason="stage_error"}}': f"7x{BEFORE} 0x{over}",
        f'vllm_omni:audio_duration_s_count{{{SERVER},model_name="omni"}}': counted,
    }  # fmt: skip


@pytest.mark.parametrize("loads_s", [150, 290])
def test_a_restart_in_a_quiet_night_tells_nobody(tmp_path: Path, loads_s: int) -> None:
    told(tmp_path, loads_s)


def test_a_server_that_does_not_come_up_that_night_pages(tmp_path: Path) -> None:
    late_s = Settings().model_server.load_s + 30
    told(tmp_path, late_s, ('{alertname="ModelServerDown", cause="loading"}', 1))


def told(directory: Path, loads_s: int, *expected: tuple[str, float]) -> None:
    """Hold that these alerts fired in the night, and no others."""
    rules = sorted(
        f"alerts/{path.name}"
        for path in (rendered(directory) / "alerts").glob("*.rules.yaml")
        if path.name != "fleet.rules.yaml"
    )
    end = f"{(BEFORE + AFTER) * EVERY_S + loads_s}s"
    hold(
        directory, rules, EVERY_S, night(loads_s // EVERY_S), promql_expr_test=[sample(TOLD, end, *expected)]
    )
