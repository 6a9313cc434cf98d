"""Make up what a broken or hostile server answers: bytes of connections, from valid turns that are damaged at random."""

from __future__ import annotations

import random
import struct

from helpers.clients import OPUS
from omniwatch import frames
from omniwatch.frames import Kind

NUMBERS = [
    *("0", "1", "-1", "-5", "80", "48000", "0.5", "-0.0", "1e30", "1e+30", "1e-30", "1e99", "1e400", "nan", "inf"),
    *("", " ", "1,5", "0x10", "1_0", "２", "+3", "4294967295", "4294967296", "2147483648", "18446744073709551616"),
    *("9" * 15, "9" * 16, "9" * 5000, "1" + "0" * 308, "true", "null", '"7"', "[]", "{}"),
]  # fmt: skip
HEADERS = [
    *("X-Omni-First-Id", "X-Omni-Frame-Ms", "X-Omni-Heartbeat-S", "X-Omni-Grace-S", "X-Omni-Cache-Win"),
    *("X-Omniwatch-Stream", "Keep-Alive", "Connection"),
    *("X-Omni-Resume", "X-Omni-Result", "Content-Length", "Transfer-Encoding", "Retry-After"),
]
STATUSES = (
    [200] * 8 + [206] * 6 + [100, 101, 199, 204, 301, 304, 400, 401, 404, 409, 410, 416, 429, 500, 503, 0, 99]
)
PACKETS = [bytes.fromhex(packet) for kind in OPUS["packets"].values() for packet in kind]
IDS = [0, 1, 2, 3, 5, 44_999, 45_000, 45_001, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]


def _payload(luck: random.Random, kind: int) -> bytes:
    if kind == Kind.FORMAT:
        rate, channels = (luck.choice(NUMBERS) if luck.random() < 0.03 else good for good in ("100", "1"))
        codec = luck.choice(["pcm16", "pcm16", "codes", "", *["opus"] * 4])
        if codec == "opus" and (rate, channels) == ("100", "1"):
            rate, channels = luck.choice([("24000", "1")] * 4 + [("48000", "1"), ("48000", "2")])
        said = f'{{"codec": "{codec}", "sample_rate_hz": {rate}, "channels": {channels}}}'
    elif kind == Kind.END:
        said = luck.choice(
            [
                '{"reason": "done"}',
                '{"reason": "superseded"}',
                '{"reason": "slow"}',
                '{"reason": ""}',
                "{",
                "[1]",
                '{"reason": 5}',
            ]
        )
    elif kind == Kind.TEXT:
        return luck.choice([b"hi", b"", b"\xff\xfe", "é".encode()[:1], b"\0" * 9])
    elif kind == Kind.EVENT:
        said = luck.choice(["{}", "", "[" * 9000, '{"a": 1e999}'])
    else:
        return _speech(luck)
    if luck.random() < 0.03:
        said = luck.choice(["", "null", "[" * 9000, said[:-3], said * 3])
    return said.encode()


def _speech(luck: random.Random) -> bytes:
    """Return PCM, a packet of Opus, one that is damaged, or noise that says that it is of 80 ms."""
    how = luck.random()
    if how < 0.3:
        return bytes(luck.choice([0, 1, 15, 16, 16, 16, 16, 16, 3840]))
    if how < 0.4:
        return bytes([luck.choice([3, 11, 27, 83, 99, 227])]) + luck.randbytes(
            luck.choice([1, 40, 1300, 7656])
        )
    packet = bytearray(luck.choice(PACKETS))
    if how < 0.6:
        packet[luck.choice([0, 0, 1, luck.randrange(len(packet))])] = luck.randrange(256)
        del packet[luck.choice([1, 2, 9, len(packet), len(packet)]) :]
    return bytes(packet)


def _frame(luck: random.Random, place: int) -> bytes:
    kind = luck.choice([0] * 12 + [1, 2, 3, 4, 5, 6, 255])
    frame_id = (
        luck.choice(IDS) if luck.random() < 0.1 else (place + luck.choice([0, 0, 0, 0, 1, 4, -2])) % 2**32
    )
    part = luck.choice([0, 1, 1, 2, 7, 2**32 - 1]) if kind or luck.random() < 0.05 else 0
    data = bytearray(frames.encode(frame_id, _payload(luck, kind), kind=kind, part=part))
    if luck.random() < 0.03:
        struct.pack_into("<I", data, 8, luck.choice([0, 1, 2**23, 2**23 + 1, 2**31, 2**32 - 1]))
    if luck.random() < 0.05:
        data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
    return bytes(data)


def _chunked(luck: random.Random, body: bytes) -> bytes:
    pieces = []
    while body:
        size = luck.choice([1, 7, 100, 4000])
        piece, body = body[:size], body[size:]
        stated = luck.choice(NUMBERS) if luck.random() < 0.02 else f"{len(piece):x}"
        pieces.append(f"{stated}{luck.choice(['', '', '', ';a=b', ' '])}\r\n".encode() + piece + b"\r\n")
    return b"".join(pieces) + luck.choice([b"0\r\n\r\n", b"0\r\n\r\n", b"", b"0\r\nX: y\r\n\r\n"])


def _answer(luck: random.Random, resumed: bool) -> bytes:
    fields = {
        "X-Omni-Resume": "S" * 20,
        "X-Omni-First-Id": "0",
        "X-Omni-Frame-Ms": "80",
        "X-Omni-Heartbeat-S": "0.25",
        "X-Omni-Cache-Win": "75",
        "X-Omniwatch-Stream": "R" * 32,
    }
    place, wire = luck.choice([0, 0, 0, 3]), []
    wire.append(frames.encode(2**32 - 1, _payload(luck, Kind.FORMAT), kind=Kind.FORMAT, part=1))
    for _ in range(luck.choice([0, 1, 5, 30])):
        wire.append(_frame(luck, place))
        place += 1
    if luck.random() < 0.3:
        wire.append(frames.encode((place - 1) % 2**32, b'{"reason": "done"}', kind=Kind.END, part=1))
    body = b"".join(wire)
    how = luck.random()
    if how < 0.6:
        fields["Transfer-Encoding"] = "chunked"
        body = _chunked(luck, body)
    elif how < 0.8:
        fields["Content-Length"] = str(len(body))
    for _ in range(luck.choice([0, 0, 0, 0, 0, 1, 3])):
        fields[luck.choice(HEADERS)] = luck.choice(NUMBERS)
    status = (206 if resumed else 200) if luck.random() < 0.9 else luck.choice(STATUSES)
    early = luck.choice([b""] * 15 + [b"HTTP/1.1 100 Continue\r\n\r\n"] * 2) * luck.choice([1, 25, 2000])
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return early + f"HTTP/1.1 {status} -\r\n{head}\r\n".encode() + body


def whole_turn() -> bytes:
    """Return the answer of a server that is well: twenty frames of speech and the end."""
    wire = [
        frames.encode(
            2**32 - 1, b'{"codec": "pcm16", "sample_rate_hz": 100, "channels": 1}', kind=Kind.FORMAT, part=1
        )
    ]
    wire += [frames.encode(place, bytes(16)) for place in range(20)]
    wire.append(frames.encode(19, b'{"reason": "done"}', kind=Kind.END, part=1))
    ids = f"X-Omni-Resume: {'S' * 20}\r\nX-Omniwatch-Stream: {'R' * 32}"
    head = f"HTTP/1.1 200 -\r\n{ids}\r\nX-Omni-First-Id: 0\r\n\r\n"
    return head.encode() + b"".join(wire)


def _damaged(luck: random.Random, data: bytes) -> bytes:
    at, other = sorted((luck.randrange(len(data) + 1), luck.randrange(len(data) + 1)))
    return luck.choice(
        [
            data[:at],
            data[:at] + data[other:],
            data[:other] + data[at:],
            data[:at] + luck.choice(NUMBERS).encode() + data[at:],
            data[:at] + luck.randbytes(luck.choice([1, 2, 8])) + data[at + 1 :],
            luck.randbytes(at),
        ]
    )


def conversation(luck: random.Random) -> list[bytes]:
    """Return what a server sends on each of the connections of one turn, in their order."""
    found = []
    for number in range(luck.randint(1, 8)):
        data = _answer(luck, resumed=number > 0)
        found.append(_damaged(luck, data) if luck.random() < 0.25 else data)
    return found
