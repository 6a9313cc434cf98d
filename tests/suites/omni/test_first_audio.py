"""The time to first audio on the real vLLM-Omni: by the tap and by the server itself, with the tap and without it."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from helpers.waiting import wait_until
from omniwatch import events as ev
from suites.omni.installation import Say
from suites.omni.listening import chat
from suites.omni.server import Omni

ARMS = ("bare", "tapped")
AGREEMENT_MS = 10.0
TURNS = 9
COST = 0.01
"""How much later the first audio may be for the tap, as a share."""
PAIRS = (100, 200)
"""At least; and at most, where the machine is so uneven that fewer do not tell."""
PRECISION = 0.004
SHORT = [
    {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True},
    {
        "temperature": 0.9,
        "top_k": 50,
        "seed": 42,
        "max_tokens": 5,
        "ignore_eos": True,
        "repetition_penalty": 1.05,
    },
]
"""For the thinker and the talker: an answer of one chunk of speech."""


class Times(NamedTuple):
    """One request by the server's clock: to its first audio, and spent in the tap's own code until then."""

    first_audio_ms: float
    between_ms: float


def ask(omni: Omni, **headers: str) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with chat(omni.port, named, sampling_params_list=SHORT) as speech:
        assert list(speech)


def test_the_tap_agrees_with_the_server(omni: Omni, say: Say) -> None:
    """The server's `audio_ttfp_s` ends before the speech is encoded, the tap's time when it is handed to the network."""
    ask(omni)
    apart_ms = [later_ms(omni, f"agreement-{number}") for number in range(TURNS)]
    shown = ", ".join(f"{ms:.1f}" for ms in apart_ms)
    say(f"  first audio, the tap's time less the server's audio_ttfp_s (ms): {shown}")
    assert abs(statistics.median(apart_ms)) < AGREEMENT_MS


def later_ms(omni: Omni, name: str) -> float:
    """Ask once; return the tap's time to first audio less the server's own."""
    family = "vllm_omni:audio_ttfp_s"
    count, total_s = omni.metric(f"{family}_count"), omni.metric(f"{family}_sum")
    ask(omni, x_omni_stream=name)
    wait_until(lambda: omni.metric(f"{family}_count") > count)
    stream = f"name={name}"
    wait_until(lambda: any(isinstance(event, ev.Audio) for event in omni.streams().get(stream, [])))
    events = omni.streams()[stream]
    (asked,) = [event for event in events if isinstance(event, ev.TurnStart)]
    first = next(event for event in events if isinstance(event, ev.Audio))
    return ((first.t - asked.t) - (omni.metric(f"{family}_sum") - total_s)) * 1000


@pytest.mark.timeout(1200)
def test_first_audio_is_not_later_for_the_tap(omni: Omni, say: Say) -> None:
    """In pairs, one request after another in an order left to chance, timed inside the server.

    The interval says how sure the ratio is. Beside it stands what a request spent in the tap's own code until its first
    audio, which the unevenness of the machine does not blur.
    """
    order = random.Random(3)
    for arm in ARMS:
        timed(omni, arm)
    found: list[dict[str, Times]] = []
    low, ratio, high = 0.0, 1.0, math.inf
    while len(found) < PAIRS[0] or (high - low > 2 * PRECISION and len(found) < PAIRS[1]):
        found.append({arm: timed(omni, arm) for arm in order.sample(ARMS, 2)})
        low, ratio, high = median_interval(
            [pair["tapped"].first_audio_ms / pair["bare"].first_audio_ms for pair in found]
        )
    bare_ms = statistics.median(pair["bare"].first_audio_ms for pair in found)
    between_ms = {arm: statistics.median(pair[arm].between_ms for pair in found) for arm in ARMS}
    share = (between_ms["tapped"] - between_ms["bare"]) / bare_ms
    say(
        f"  first audio with the tap over without: {ratio:.4f} (95 %: {low:.4f} to {high:.4f}; {len(found)} pairs, "
        f"median {bare_ms:.0f} ms); in the tap's own code {between_ms['tapped'] * 1000:.0f} us, {share:.4%}"
    )
    assert share < COST
    assert low < 1 + COST


def timed(omni: Omni, arm: str) -> Times:
    """Ask once, through the tap or past it; return what the stopwatch noted."""
    before = len(notes(omni))
    ask(omni, x_arm=arm)
    wait_until(lambda: len(notes(omni)) > before, what="the stopwatch's note")
    (note,) = notes(omni)[before:]
    assert note["arm"] == arm
    assert note["first_audio_ms"] > 0
    return Times(note["first_audio_ms"], note["between_ms"])


def notes(omni: Omni) -> list[dict[str, Any]]:
    lines = omni.stopwatch.read_text().splitlines() if omni.stopwatch.exists() else []
    return [json.loads(line) for line in lines]


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median between the bounds of its 95 % confidence interval, by order statistics: no distribution assumed."""
    ordered = sorted(values)
    reach = 0.98 * math.sqrt(len(ordered))
    first = max(0, math.floor(len(ordered) / 2 - reach))
    return ordered[first], statistics.median(ordered), ordered[-1 - first]
