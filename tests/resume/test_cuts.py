"""For any cut at any byte the listener hears what an uncut one hears, sample for sample, or is told why not."""

from __future__ import annotations

import random

import pytest

from helpers.asgi import resuming
from helpers.flaky_network import CuttingNetwork, Listener, listen, small_speaker
from helpers.spoken import Speaker
from omniwatch.client import Config
from omniwatch.desk.link.scenario import FrameTrouble, Loss
from omniwatch.desk.link.virtual import run
from omniwatch.frames import add

pytestmark = pytest.mark.slow

CUTS = 1000
OPUS_CUTS = 150
"""Of a seed: each turn is encoded and decoded."""


def outage(rng: random.Random) -> float:
    """Mostly none or short; one in ten takes up most of the grace."""
    return rng.choice(
        [0.0, 0.0, rng.expovariate(2.0), rng.expovariate(0.5) % 20.0] * 2 + [0.0, rng.uniform(0, 20)]
    )


@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_cuts_are_not_heard(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        first_id = rng.choice([0, 2**32 - 10])
        app, speaker, _ = resuming(small_speaker(), first_id=lambda: first_id)
        cuts = turns = 0
        while cuts < CUTS:
            network = CuttingNetwork(app, rng, mean_bytes=rng.choice([2500, 5000, 10_000]), outage_s=outage)
            listener, summary = await listen(app, network, turns, rng)
            assert summary.reason == "done"
            assert listener.speech == speaker.speech(turns)
            assert listener.said == speaker.text(turns)
            assert [frame_id for frame_id, _ in listener.heard] == [add(first_id, i) for i in range(31)]
            cuts += network.cuts
            turns += 1

    run(main())


def frame_trouble(rng: random.Random) -> FrameTrouble:
    """Draw how frames are lost, repeated and reordered on a path."""
    return FrameTrouble(
        drop=Loss(share=rng.choice([0.05, 0.3]), burst=rng.choice([None, 3, 6])),
        repeat=0.05,
        reorder=0.1,
        depth=rng.randint(1, 8),
    )


@pytest.mark.parametrize("seed", range(4))
def test_frames_lost_repeated_and_reordered_between_cuts_are_fetched_or_named(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        app, speaker, _ = resuming(small_speaker())
        cuts = turns = rtxs = lost = 0
        while cuts < CUTS / 2:
            trouble = frame_trouble(rng)
            network = CuttingNetwork(
                app, rng, mean_bytes=rng.choice([3000, 20_000]), outage_s=outage, trouble=trouble
            )
            listener, summary = await listen(app, network, turns, rng)
            assert summary.reason == "done"
            assert listener.said == speaker.text(turns)
            truth = speaker.speech(turns)
            assert [frame_id for frame_id, _ in listener.heard] == list(range(31))
            for frame_id, payload in listener.heard:
                if payload is not None:
                    assert payload == truth[frame_id * 1280 : (frame_id + 1) * 1280]
            assert sum(payload is None for _, payload in listener.heard) == summary.lost
            cuts += network.cuts
            rtxs += summary.rtx
            lost += summary.lost
            turns += 1
        assert rtxs > 10
        assert lost > 0

    run(main())


PATIENCE_S = 120.0
"""Of a question on networks so bad that a tenth of a minute without any is common."""


def small_voice() -> Speaker:
    """Return a speaker of 30 frames in Opus, some 7 kB, with text between."""
    return Speaker(speech_s=2.4, speed=4.0, first_s=0.05)


async def whole(seed: int) -> Listener:
    """Hear a turn in Opus that is not cut."""
    app, rng = resuming(small_voice())[0], random.Random(0)
    network = CuttingNetwork(app, rng, mean_bytes=1 << 28, outage_s=lambda _: 0.0)
    return (await listen(app, network, seed, rng, config=Config()))[0]


@pytest.mark.parametrize("seed", range(3))
def test_cuts_in_opus_are_not_heard_sample_for_sample(seed: int) -> None:
    """What is sent again is the same packets, and the decoder goes on where it was."""

    async def main() -> None:
        rng = random.Random(seed)
        app, speaker, _ = resuming(small_voice())
        uncut = [await whole(number) for number in range(4)]
        cuts = turns = 0
        while cuts < OPUS_CUTS:
            number = turns % 4
            network = CuttingNetwork(app, rng, mean_bytes=rng.choice([500, 1000, 2000]), outage_s=outage)
            listener, summary = await listen(app, network, number, rng, config=Config(give_up_s=PATIENCE_S))
            assert summary.reason == "done"
            assert (summary.lost, listener.said) == (0, speaker.text(number))
            assert listener.heard == uncut[number].heard
            cuts += network.cuts
            turns += 1

    run(main())


@pytest.mark.parametrize("seed", range(2))
def test_frames_in_opus_that_are_lost_between_cuts_are_fetched_or_concealed(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        app, speaker, _ = resuming(small_voice())
        cuts = turns = rtxs = lost = 0
        while cuts < OPUS_CUTS:
            trouble = frame_trouble(rng)
            network = CuttingNetwork(
                app, rng, mean_bytes=rng.choice([600, 4000]), outage_s=outage, trouble=trouble
            )
            listener, summary = await listen(app, network, turns, rng, config=Config())
            assert summary.reason == "done"
            assert listener.said == speaker.text(turns)
            assert [frame_id for frame_id, _ in listener.heard] == list(range(31))
            sizes = [payload and len(payload) for _, payload in listener.heard]
            # Those before the first packet have nothing to be concealed with.
            unheard = sizes.count(None)
            assert sizes == [None] * unheard + [3840] * (31 - unheard)
            assert summary.spoken + summary.lost == 31
            cuts += network.cuts
            rtxs += summary.rtx
            lost += summary.lost
            turns += 1
        assert rtxs > 5
        assert lost > 0

    run(main())


def test_an_outage_longer_than_the_grace_is_named() -> None:
    async def main() -> None:
        rng = random.Random(1)
        app, speaker, _ = resuming(small_speaker())
        for seed in range(20):
            network = CuttingNetwork(app, rng, mean_bytes=5000, outage_s=lambda _: 33.0)
            listener, summary = await listen(app, network, seed, rng)
            assert summary.reason in ("done", "gone", "no way to the server")
            assert listener.speech == speaker.speech(seed)[: len(listener.speech)]
            assert (listener.speech == speaker.speech(seed)) == (summary.reason == "done")

    run(main())
