"""Sound that a speech codec keeps: tones whose loudness swings, as syllables do."""

from __future__ import annotations

import math
from array import array
from concurrent.futures import Executor, Future
from functools import lru_cache
from typing import Any

from omniwatch.desk.link.fake_server import FakeServer


@lru_cache(maxsize=8)
def spoken(seconds: float, rate_hz: int = 24_000, channels: int = 1, pitch_hz: float = 180.0) -> bytes:
    """Return PCM16: a voiced sound of four syllables a second."""
    samples = array("h")
    for i in range(round(seconds * rate_hz)):
        t = i / rate_hz
        voiced = sum(math.sin(2 * math.pi * pitch_hz * k * t) / k for k in (1, 2, 3, 5))
        value = round(5000 * voiced * (1 - math.cos(2 * math.pi * 4 * t)) / 2)
        samples.extend([value] * channels)
    return samples.tobytes()


class Speaker(FakeServer):
    """The stand-in for the model server, with a voice."""

    def speech(self, seed: int) -> bytes:
        return spoken(self.speech_s, self.rate_hz, 1, 150.0 + 10 * seed)


def likeness(one: bytes, other: bytes, shift: int = 0) -> float:
    """Return the correlation of two sounds, the other moved back by `shift` samples: 1 for the same."""
    a, b = array("h", one), array("h", other)[shift:]
    n = min(len(a), len(b))
    dot = sum(x * y for x, y in zip(a[:n], b[:n], strict=True))
    norms = math.sqrt(sum(x * x for x in a[:n]) * sum(y * y for y in b[:n]))
    return dot / norms if norms else 0.0


def alike(one: bytes, other: bytes) -> float:
    """Return the correlation of a second of a sound and of its decoded packets, which come 6.5 ms later or nearly so."""
    return max(likeness(one[:48_000], other[:48_000], shift) for shift in range(140, 176, 2))


def level(pcm: bytes) -> float:
    """Return the loudness of PCM16: its root mean square."""
    samples = array("h", pcm)
    return math.sqrt(sum(x * x for x in samples) / max(1, len(samples)))


class AtOnce(Executor):
    """Does work where it is asked: for loops whose time is made up, which would not wait for a thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
