"""Runs scripts of a session's inputs in Python and in C++ and writes down what comes out, in the same words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.paths import CLONE, DATA
from helpers.spoken import level
from omniwatch import frames
from omniwatch.client.config import Config
from omniwatch.client.session import Session
from omniwatch.frames import Kind

CLIENTS = CLONE / "deploy" / "clients"
WITH_OPUS = ["-DOMNIWATCH_OPUS", "-lopus"]
VECTORS = json.loads((DATA / "client_vectors.json").read_text())
OPUS = json.loads((DATA / "opus_vectors.json").read_text())
"""Packets by the names that scripts have for them, and the vectors that use them."""


ANSWERS = [
    (b"HTTP/1.1 206 -\r\nTransfer-Encoding: Chunked\r\nX-A:  b \r\n\r\n3\r\nabc\r\n1F;x=y\r\n" + b"d" * 31 + b"\r\n0\r\n\r\n",
     206, b"abc" + b"d" * 31, True),
    (b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone", 404, b"gone", True),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nto the end", 200, b"to the end", False),
    (b"HTTP/1.0 204 -\r\n\r\n", 204, b"", True),
]  # fmt: skip
"""Answers of a server as bytes; their status, their body, whether nothing follows."""

_CHUNKED = b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n"
INVALID = {
    "another protocol": b"SSH-2.0-OpenSSH\r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc\r\n\r\n",
    "a head without an end": b"x" * 70_000,
    "a chunk of letters": _CHUNKED + b"zz\r\n",
    "a chunk without an end of its size": _CHUNKED + b"1" * 2000,
    "a chunk below zero": _CHUNKED + b"-5\r\nabcde\r\n",
    "a chunk with a prefix": _CHUNKED + b"0x5\r\nabcde\r\n",
    "a chunk of 5,000 digits": _CHUNKED + b"f" * 5000 + b"\r\n",
    "a chunk longer than it says": _CHUNKED + b"2\r\nabcde\r\n",
    "a length of 5,000 digits": b"HTTP/1.1 200 -\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
    "a length below zero": b"HTTP/1.1 200 -\r\ncontent-length: -5\r\n\r\nabcde",
    "an encoding that is not known": b"HTTP/1.1 200 -\r\ntransfer-encoding: gzip\r\n\r\n",
    "continue, 2,000 times": b"HTTP/1.1 100 Continue\r\n\r\n" * 2000 + b"HTTP/1.1 200 -\r\n\r\n",
}
"""What is not an HTTP response, or one beyond the clients' limits."""


def packet(name: str) -> bytes:
    """Return a packet of the vectors: "mono.3" is the fourth of 24 kHz mono."""
    kind, _, number = name.partition(".")
    return bytes.fromhex(OPUS["packets"][kind][int(number)])


def wire(word: str) -> str:
    """Encode "speech:5:0102", "text:5.1:hi", "end:5.2:done", "format:4.1:8000", "event:5.3:{}", "idle", as hex.

    "packet:5:mono.3" is speech in Opus, "format:4.1:opus/48000/2" says so. A leading "!" damages the frame's last byte.
    """
    kind, _, rest = word.lstrip("!").partition(":")
    place, _, said = rest.partition(":")
    frame_id, _, part = place.partition(".")
    rate_hz, codec, channels = said, "pcm16", "1"
    if kind == "format" and "/" in said:
        codec, rate_hz, channels = said.split("/")
    payload = {
        "speech": lambda: bytes.fromhex(said),
        "packet": lambda: packet(said),
        "text": said.encode,
        "event": said.encode,
        "format": lambda: (
            b'{"codec": "%s", "sample_rate_hz": %d, "channels": %d, "frame_samples": 4}'
            % (codec.encode(), int(rate_hz), int(channels))
        ),
        "end": lambda: json.dumps({"reason": said}).encode(),
        "idle": lambda: b"",
    }[kind]()
    kind = kind.replace("packet", "speech")
    data = frames.encode(int(frame_id or 0), payload, kind=Kind[kind.upper()], part=int(part or 0))
    return (data[:-1] + bytes([data[-1] ^ 1]) if word.startswith("!") else data).hex()


def expand(line: str) -> str:
    """Replace the frames of a `data` or `again` line by their bytes in hex; "hex:…" is taken as it is."""
    verb, *words = line.split()
    fixed = {"data": 2, "again": 1}.get(verb)
    if fixed is None:
        return line
    said = "".join(word[4:] if word.startswith("hex:") else wire(word) for word in words[fixed:])
    return " ".join([verb, *words[:fixed], said])


def _fixed(value: float) -> str:
    return f"{value + 0.0:.4f}".replace("-0.0000", "0.0000")


class Teller:
    """Writes down what a session wants done."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))

    def open(self, conn: int) -> None:
        self.say("open", conn)

    def ask(self, conn: int, body: dict[str, Any] | None) -> None:
        self.say("ask", conn, json.dumps(body) if body else "")

    def drop(self, conn: int) -> None:
        self.say("drop", conn)

    def rtx(self, from_id: int, count: int) -> None:
        self.say("rtx", from_id, count)

    def format(self, sound: dict[str, Any]) -> None:
        self.say("format", sound["sample_rate_hz"], sound["channels"])

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        self.say("audio", frame_id, payload.hex(), _fixed(play_at))

    def text(self, text: str) -> None:
        self.say("text", text.encode().hex())

    def event(self, payload: memoryview) -> None:
        self.say("event", payload.hex())

    def lost(self, from_id: int, count: int) -> None:
        self.say("lost", from_id, count)

    def realign(self, shift_ms: float) -> None:
        self.say("realign", _fixed(shift_ms))

    def resumed(self, result: str, outage_s: float, answer_s: float, late_s: float) -> None:
        self.say("resumed", result or "-", _fixed(outage_s), _fixed(answer_s), _fixed(late_s))

    def ended(self, reason: str) -> None:
        self.say("ended", reason)


def run_python(script: Iterable[str]) -> list[str]:
    """Run one script's lines (expanded)."""
    teller, config, luck = Teller(), {}, [0.5]
    decoders: dict[str, frames.Decoder] = {}
    session: Session | None = None
    rtts = 1
    for line in script:
        verb, *words = line.split()
        if verb == "config" and words[0] == "handshake_rtts":
            rtts = int(words[1])
            continue
        if verb == "config":
            config[words[0]] = float(words[1]) if words[0].endswith(("_s", "_ms")) else int(words[1])
            continue
        if verb == "jitter":
            luck[0] = float(words[0])
            continue
        if verb == "start":
            session = Session(teller, Config(**config), lambda: luck[0], rtts)
            session.start(float(words[0]), words[1:] == ["warm"])
        assert session is not None
        if verb == "counts":
            heard = session.buffer
            counts = heard.spoken, heard.duplicates, heard.corrupt, heard.missed, len(heard.recent)
            teller.say("counts", *counts)
            continue
        now, rest = float(words[0]), words[1:]
        if verb == "opened":
            session.opened(now, int(rest[0]))
        elif verb == "closed":
            session.closed(now, int(rest[0]))
        elif verb == "untrusted":
            session.untrusted(now, int(rest[0]))
        elif verb == "head":
            session.head(now, int(rest[0]), int(rest[1]), dict(pair.split("=", 1) for pair in rest[2:]))
        elif verb == "data":
            decoder = decoders.setdefault(rest[0], frames.Decoder())
            session.data(now, int(rest[0]), list(decoder.feed(bytes.fromhex("".join(rest[1:])))))
        elif verb == "again":
            session.again(now, list(frames.Decoder().feed(bytes.fromhex("".join(rest)))))
        elif verb == "refused":
            session.refused(now, int(rest[0]))
        elif verb == "picture":
            session.picture(now, float(rest[0]))
        elif verb == "tick":
            session.tick(now)
        elif verb == "report":
            due = session.report.due_at is not None
            teller.say("report", json.dumps(session.report.body(now)) if due else "nothing")
        elif verb == "reported":
            session.report.answered(now, int(rest[0]))
            due_at = session.report.due_at
            teller.say("due", "never" if due_at is None else _fixed(due_at))
        wake_at = session.wake_at()
        teller.say("wake", "never" if wake_at is None else _fixed(wake_at))
    return normal(teller.lines)


def audible(lines: Iterable[str]) -> list[str]:
    """Replace the sound of audio lines by its bytes and its loudness: decoders differ by a little."""
    found = []
    for line in lines:
        words = line.split(" ")
        if words[0] == "audio":
            pcm = bytes.fromhex(words[2])
            line = f"audio {words[1]} {len(pcm)} {level(pcm):.0f} {words[3]}"
        found.append(line)
    return found


def sounds_as(got: str, wanted: str) -> bool:
    """Return whether a line is what a vector expects: the loudness of decoded sound may differ by 4 %.

    That of sound which is concealed (~) may differ by a quarter: each release of libopus has its own way.
    """
    words, expected = got.split(" "), wanted.split(" ")
    if words[0] != "audio" or len(expected) != 5:
        return got == wanted
    loudness, share, slack = expected.pop(3), 0.04, 20
    if loudness.startswith("~"):
        loudness, share, slack = loudness[1:], 0.25, 100
    return abs(int(words.pop(3)) - int(loudness)) <= share * int(loudness) + slack and words == expected


def normal(lines: Iterable[str]) -> list[str]:
    """Bring the bodies of requests into one form: JSON has many for the same."""
    found = []
    for line in lines:
        before, brace, rest = line.strip().partition("{")
        if brace and before.startswith(("ask ", "report ")):
            body = {
                key: value if isinstance(value, (str, bool)) else float(value)
                for key, value in json.loads(brace + rest).items()
            }
            line = before + json.dumps(body, sort_keys=True)
        found.append(line.strip())
    return found


def compile_cpp(name: str, folder: Path, source: Path = CLIENTS, *, opus: bool = False) -> Path:
    """Compile one of deploy/clients, or of another folder, with every warning an error; without `opus` no libopus is linked."""
    program = folder / name
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
    done = subprocess.run(
        ["g++", *flags, "-I", str(CLIENTS), str(source / f"{name}.cpp"), "-o", str(program), "-lcurl"]
        + (WITH_OPUS if opus else []),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return program


def comma_locale(folder: Path) -> dict[str, str]:
    """Make a locale whose decimal point is a comma; return the environment of a process that uses it."""
    letters = "".join(f"<U{code:04X}> /x{code:02x} <c{code}>\n" for code in range(128))
    charmap, source = folder / "ascii", folder / "comma.src"
    charmap.write_text(
        f"<code_set_name> ANSI_X3.4-1968\n<comment_char> %\n<escape_char> /\nCHARMAP\n{letters}END CHARMAP\n"
    )
    source.write_text(
        'escape_char /\nLC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3\nEND LC_NUMERIC\n'
    )
    # It warns of the categories that are left out.
    command = ["localedef", "-c", "-f", charmap, "-i", source, folder / "comma"]
    subprocess.run(command, capture_output=True, check=False)
    environ = {"LOCPATH": str(folder), "LC_ALL": "comma"}
    proof = "from locale import *; setlocale(LC_ALL, ''); assert localeconv()['decimal_point'] == ','"
    subprocess.run([sys.executable, "-c", proof], env=environ, check=True)
    return environ


def run_cpp(
    program: Path, scripts: list[list[str]], environ: dict[str, str] | None = None
) -> list[list[str]]:
    """Run many scripts (expanded) in one process."""
    lines = [line for script in scripts for line in ["reset", *script]]
    done = subprocess.run(
        [str(program)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environ,
    )
    found: list[list[str]] = []
    for line in done.stdout.splitlines():
        if line == "reset":
            found.append([])
        else:
            found[-1].append(line)
    return [normal(lines) for lines in found]
