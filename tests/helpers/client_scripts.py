"""Scripts of a session's inputs, made up at random, for the clients in Python and in C++."""

from __future__ import annotations

import random

from helpers.clients import expand


def place(luck: random.Random, opus: bool = False) -> str:
    """Return one frame near the beginning of the turn, in any order, damaged, early, late."""
    frame_id = luck.choice([luck.randint(-3, 12), luck.randint(-1, 6), luck.randint(150, 170)]) % 2**32
    kind = luck.choice(["speech"] * 8 + ["text", "text", "event", "idle", "!speech", "end"])
    if opus and kind.endswith("speech") and luck.random() < 0.8:
        return f"{kind.replace('speech', 'packet')}:{frame_id}:mono.{frame_id % 16}"
    if kind.endswith("speech"):
        return f"{kind}:{frame_id}:{frame_id % 256:02x}" + "00" * luck.randint(0, 9)
    if kind == "idle":
        return kind
    part = luck.randint(0 if kind == "end" else 1, 3)
    if opus and luck.random() < 0.1:
        sound = luck.choice(["opus/24000/1", "opus/24000/1", "opus/48000/1", "opus/44100/1", "pcm16/24000/1"])
        return f"format:{frame_id}.{part}:{sound}"
    if luck.random() < 0.02:
        return f"format:{frame_id}.{part}:{luck.choice([0, 1, 48_000, 768_000, 768_001])}"
    return f"{kind}:{frame_id}.{part}:{luck.choice(['done', 'superseded', 'slow'])}"


def script(luck: random.Random, opus: bool = False) -> list[str]:
    """Return the inputs of a session (expanded): connections come and go, frames come as `place` says."""
    is_warm = luck.random() < 0.3
    lines = [f"config handshake_rtts {luck.choice([1, 2])}", f"jitter {luck.choice([0, 0.5, 1])}"]
    lines.append("start 0 warm" if is_warm else "start 0")
    if luck.random() < 0.9:
        said = f"x-omniwatch-stream={'R' * luck.choice([15, 16, 64, 64])} x-omni-first-id=0 x-omni-frame-ms=80 x-omni-heartbeat-s={luck.choice([0.25, 0.25, 0.3, 2])}"
        lines += [] if is_warm else ["opened 0.05 0"]
        lines += [f"head 0.1 0 200 x-omni-resume=S {said}"]
        lines += [f"data 0.1 0 format:4294967295.1:{'opus/24000/1' if opus else 100}"]
    now = 0.1
    verbs = (
        ["data"] * 6
        + ["tick"] * 4
        + ["opened"] * 3
        + ["head", "closed", "untrusted", "again", "refused", "picture", "report", "report", "reported"]
    )
    for _ in range(luck.randint(0, 40)):
        now += luck.choice([0.0, 0.01, 0.07, 0.31, 0.6, 1.3])
        verb, conn = luck.choice(verbs), luck.randint(0, 6)
        rest: object = conn
        if verb == "data":
            rest = f"{conn} " + " ".join(place(luck, opus) for _ in range(luck.randint(1, 5)))
        elif verb == "again":
            rest = " ".join(place(luck, opus) for _ in range(luck.randint(1, 5)))
        elif verb == "head":
            rest = f"{conn} {luck.choice([206, 206, 206, 409, 429, 404, 503])} x-omni-result=replay"
        elif verb == "picture":
            rest = luck.randint(0, 3000)
        elif verb in ("tick", "report"):
            rest = ""
        elif verb == "reported":
            rest = luck.choice([204, 204, 204, 0, 409, 404])
        lines.append(f"{verb} {now:.3f} {rest}")
    return [*map(expand, lines), "counts"]
