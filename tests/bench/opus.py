"""What Opus costs the server: a core's share for a turn in real time, and how long its event loop stands still.

The peers are of the same run: opusenc (C, libopus) for the encoder, and the same eight turns in PCM for the loop.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.spoken import Speaker, spoken
from omniwatch import frames
from omniwatch.client.opus import OpusDecoder
from omniwatch.desk.child_process import program
from omniwatch.resume import Resume
from omniwatch.resume.opus import BITRATES, PacketEncoder

RATE_HZ, FRAME_BYTES = 24_000, 3840
TURNS = 8
TICK_S = 0.002
PEER = (
    *("--raw", "--raw-rate", str(RATE_HZ), "--raw-chan", "1", "--bitrate", str(BITRATES[0] // 1000)),
    *("--speech", "--framesize", "60", "--comp", "10", "--quiet", "-", "/dev/null"),
)


def cpu_s() -> float:
    """Return the CPU time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def encoding(pcm: bytes) -> tuple[float, float]:
    """Return the CPU seconds of our encoder and of our decoder for this speech."""
    encoder, decoder = PacketEncoder(RATE_HZ, 1, 80, BITRATES[0]), OpusDecoder(RATE_HZ, 1, 80)
    began = time.process_time()
    packets = [
        encoder.encode(memoryview(pcm)[at : at + FRAME_BYTES]) for at in range(0, len(pcm), FRAME_BYTES)
    ]
    encoded = time.process_time()
    for packet in packets:
        decoder.decode(memoryview(packet))
    return encoded - began, time.process_time() - encoded


def peer(pcm: bytes) -> float:
    """Return the CPU seconds of opusenc for this speech, its start taken off."""
    took = []
    for data in (b"", pcm):
        before = cpu_s()
        subprocess.run([program("opusenc"), *PEER], input=data, check=True, stderr=subprocess.DEVNULL)
        took.append(cpu_s() - before)
    return took[1] - took[0]


async def turn(app: Any, seed: int, accept: str) -> None:
    """Ask for one turn and drop what comes."""
    asked = [{"type": "http.request", "body": b'{"stream": true, "seed": %d}' % seed}]

    async def receive() -> Any:
        if asked:
            return asked.pop()
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        pass

    scope = {
        **{"type": "http", "method": "POST", "path": "/v1/chat/completions", "root_path": ""},
        **{"query_string": b"", "headers": [(b"accept", accept.encode())], "client": (f"10.0.0.{seed}", 1)},
    }
    await app(scope, receive, send)


async def stall_s(speech_s: float, accept: str) -> tuple[float, float]:
    """Return the longest time for which the loop stood still while the turns ran, all at once, and the longest own work.

    On a machine that others use, too, most of a stall is theirs: what the loop's thread worked meanwhile is its own.
    """
    app = Resume(Speaker(speech_s=speech_s, speed=1.0, first_s=0.1), emit=lambda event: None)
    # One before: the codec's library is loaded once in a server's life.
    await turn(Resume(Speaker(speech_s=0.2), emit=lambda event: None), 0, accept)
    for seed in range(TURNS):
        Speaker(speech_s=speech_s).speech(seed)
    turns = asyncio.gather(*(turn(app, seed, accept) for seed in range(TURNS)))
    loop, longest, own = asyncio.get_running_loop(), 0.0, 0.0
    while not turns.done():
        due, worked = loop.time() + TICK_S, time.thread_time()
        await asyncio.sleep(TICK_S)
        late = loop.time() - due
        longest, own = max(longest, late), max(own, min(late, time.thread_time() - worked))
    await turns
    return longest, own


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="of speech that is encoded")
    parser.add_argument("--rounds", type=int, default=5, help="of eight turns, in Opus and in PCM by turns")
    options = parser.parse_args()
    pcm = spoken(options.seconds)
    ours, decoding = encoding(pcm)
    theirs = peer(pcm)
    say = sys.stdout.write
    say(f"{options.seconds:.0f} s of speech, 24 kHz mono, {BITRATES[0] // 1000} kbit/s, in real time\n")
    say(f"  encoding          {100 * ours / options.seconds:>8.2f} % of a core\n")
    say(
        f"  opusenc           {100 * theirs / options.seconds:>8.2f} % of a core: ratio {ours / theirs:.2f}\n"
    )
    say(f"  decoding, client  {100 * decoding / options.seconds:>8.2f} % of a core\n")
    stalls: dict[str, list[tuple[float, float]]] = {"PCM": [], "Opus": []}
    for _ in range(options.rounds):
        for codec, accept in (("PCM", frames.MEDIA_TYPE), ("Opus", f"{frames.MEDIA_TYPE};codec=opus")):
            stalls[codec].append(asyncio.run(stall_s(4.0, accept)))
    say(f"{TURNS} turns at once, longest stall of the event loop, median of {options.rounds} rounds\n")
    medians = {
        codec: [statistics.median(each) * 1000 for each in zip(*found, strict=True)]
        for codec, found in stalls.items()
    }
    for codec, (stall_ms, own_ms) in medians.items():
        say(f"  {codec:18}{stall_ms:>8.1f} ms, of its own work {own_ms:.1f} ms\n")
    stall, own = (opus / max(0.001, pcm) for pcm, opus in zip(*medians.values(), strict=True))
    say(f"  Opus to PCM       {stall:>8.2f}, of its own work {own:.2f}\n")


if __name__ == "__main__":
    main()
