"""Play conversations of a broken or hostile server to both clients, for a given time."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
import subprocess
import time
from collections import Counter
from pathlib import Path

from helpers.clients import CLIENTS, WITH_OPUS
from helpers.paths import DATA
from helpers.server_answers import conversation, whole_turn
from omniwatch.client import Client, Config, TurnCallbacks
from omniwatch.desk.link import virtual

SANITIZE = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GLIBCXX_ASSERTIONS"]
BATCH = 500
AT_LEAST = 500
"""Turns in virtual time, however slow the machine: so that a check of how they ended depends on seeds alone."""


class _End:
    """A connection whose server sends what it is given in pieces, then ends, breaks, or says nothing more."""

    def __init__(self, data: bytes, luck: random.Random) -> None:
        self._data = data
        self._luck = luck
        self._how = luck.choice(["ends", "ends", "breaks", "hangs"])

    async def read(self, n: int) -> bytes:
        await asyncio.sleep(0.001 * self._luck.random())
        size = min(n, self._luck.randint(1, 3000))
        piece, self._data = self._data[:size], self._data[size:]
        if not piece and self._how == "breaks":
            raise ConnectionResetError("reset")
        if not piece and self._how == "hangs":
            await asyncio.sleep(3600)
        return piece

    def write(self, data: bytes) -> None:
        head = data.partition(b"\r\n\r\n")[0]
        assert all(b": " in line for line in head.split(b"\r\n")[1:]), head

    async def drain(self) -> None:
        """Take all."""

    def close(self) -> None:
        """Forget the connection."""


class _Callbacks(TurnCallbacks):
    def lost(self, from_id: int, count: int) -> None:
        assert 0 < count <= 45_000


async def _turn(seed: int) -> str:
    luck = random.Random(seed)
    answers = iter(conversation(luck))

    async def connect() -> tuple[_End, _End]:
        await asyncio.sleep(0.001)
        data = next(answers, None)
        if data is None:
            raise ConnectionRefusedError("refused")
        end = _End(data, luck)
        return end, end

    client = Client(
        "http://server", _Callbacks(), connect=connect, config=Config(give_up_s=3), jitter=luck.random
    )

    async def film() -> None:
        while True:
            client.picture(asyncio.get_running_loop().time() * 2000 * luck.random())
            await asyncio.sleep(0.04)

    filming = asyncio.ensure_future(film())
    try:
        reason = (await asyncio.wait_for(client.speak({}), 3600)).reason
        # What is played after the turn is reported, and a connection is kept.
        await asyncio.sleep(luck.choice([0, 0, 3, 30]))
        return reason
    finally:
        filming.cancel()


def fuzz_python(first: int, seconds: float) -> Counter[str]:
    """Run turns of seeds from `first` on; return how often they ended for which reason."""
    reasons: Counter[str] = Counter()
    until, seed = time.monotonic() + seconds, first
    while time.monotonic() < until or seed < first + AT_LEAST:
        try:
            reasons[virtual.run(_turn(seed))] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        seed += 1
    return reasons


def compile_fuzzer(folder: Path) -> Path:
    """Compile the C++ client's fuzzer, Opus included, with AddressSanitizer and UndefinedBehaviorSanitizer."""
    program = folder / "fuzz"
    source = DATA / "fuzz.cpp"
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        *SANITIZE,
        "-I",
        str(CLIENTS),
        str(source),
        "-o",
        str(program),
        "-lcurl",
        *WITH_OPUS,
    ]
    subprocess.run(command, check=True)
    return program


def fuzz_cpp(program: Path, first: int, seconds: float) -> Counter[str]:
    """Run turns of seeds from `first` on, as `fuzz_python` does; raises for what a sanitizer finds."""
    reasons: Counter[str] = Counter()
    until, seed, decoded = time.monotonic() + seconds, first, 0
    while time.monotonic() < until or seed < first + AT_LEAST:
        said = bytearray()
        for number in range(seed, seed + BATCH):
            answers = conversation(random.Random(number))
            said += struct.pack("<II", number, len(answers))
            for answer in answers:
                said += struct.pack("<I", len(answer)) + answer
        done = subprocess.run([str(program)], input=said, capture_output=True, check=False, timeout=100)
        assert done.returncode == 0, f"seeds {seed} to {seed + BATCH}: {done.stderr.decode()[-4000:]}"
        decoded += int(done.stderr.split()[0])
        for line in done.stdout.decode().splitlines():
            turns, _, reason = line.partition(" ")
            reasons[reason] += int(turns)
        seed += BATCH
    assert decoded > (seed - first) / 10, "hardly any speech was Opus"
    return reasons


class HostileServer:
    """Answer the requests on real connections by conversations: one a chat, an answer a connection."""

    def __init__(self, first: int) -> None:
        self._luck = random.Random(first)
        self._answers: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection, then end it, reset it, or say nothing more for a while."""
        luck = self._luck
        try:
            asked = await reader.readuntil(b"\r\n\r\n")
            if asked.startswith(b"POST /v1/chat"):
                self._answers = [whole_turn()] if luck.random() < 0.3 else conversation(luck)[::-1]
            data = self._answers.pop() if self._answers else luck.randbytes(40)
            while data:
                size = luck.randint(1, 3000)
                writer.write(data[:size])
                await writer.drain()
                data = data[size:]
                if luck.random() < 0.2:
                    await asyncio.sleep(0.01)
            how = luck.random()
            if how < 0.2:
                await asyncio.sleep(0.3)
            if how > 0.8:
                writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


async def fuzz_sockets(
    program: Path, first: int, seconds: float, tls: ssl.SSLContext | None = None, ca_file: Path | None = None
) -> Counter[str]:
    """Run the C++ client on real connections; raises for what a sanitizer finds, and for a turn without an end."""
    reasons: Counter[str] = Counter()
    server = await asyncio.start_server(HostileServer(first).serve, "127.0.0.1", 0, ssl=tls)
    url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        process = await asyncio.create_subprocess_exec(
            program,
            url,
            "10",
            *([str(ca_file)] if ca_file else []),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, wrong = await asyncio.wait_for(process.communicate(), 100)
        assert process.returncode == 0, wrong.decode()[-4000:]
        for line in said.decode().splitlines():
            turns, _, reason = line.partition(" ")
            reasons[reason] += int(turns)
    server.close()
    assert not reasons["hung up"], "a turn without an end"
    return reasons
