from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.limits import no_file_over
from helpers.odd_files import KINDS
from omniwatch.sidecar.checkpoint import CheckpointError, load, save

PAYLOAD = bytes(range(256))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_what_was_saved_last_is_loaded(path: Path) -> None:
    assert load(path) is None
    for payload in (PAYLOAD, b"", b"second"):
        save(path, payload)
        assert load(path) == payload
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


@given(st.binary(max_size=1000))
def test_any_payload(tmp_path_factory: pytest.TempPathFactory, payload: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any-checkpoint"
    save(path, payload)
    assert load(path) == payload


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    save(path, PAYLOAD)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            load(path)


def test_a_bit_turned_anywhere_is_refused(path: Path) -> None:
    save(path, PAYLOAD)
    whole = bytearray(path.read_bytes())
    for at in range(len(whole)):
        whole[at] ^= 1 << at % 8
        path.write_bytes(whole)
        with pytest.raises(CheckpointError):
            load(path)
        whole[at] ^= 1 << at % 8


def test_the_reason_is_one_line(path: Path) -> None:
    save(path, PAYLOAD)
    whole = path.read_bytes()
    reasons = {
        b"": "empty",
        b"\0" * 4096: "not a checkpoint of omniwatch",
        b"omniwatch": "cut short, 9 bytes",
        whole[:-1]: "255 bytes where its header says 256",
        whole + b"more": "260 bytes where its header says 256",
        whole[:-1] + b"x": "checksum does not match, the content was changed",
        whole.replace(b"\0\x01", b"\0\x63", 1): "version 99, this program reads version 1",
    }
    for content, reason in reasons.items():
        path.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            load(path)
        assert str(caught.value) == f"{path}: {reason}"


def test_a_folder_in_its_place_is_refused_and_not_overwritten(path: Path) -> None:
    path.mkdir()
    with pytest.raises(CheckpointError, match=r"^/.*checkpoint: Is a directory$"):
        load(path)
    with pytest.raises(OSError, match="Is a directory"):
        save(path, PAYLOAD)
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


def test_a_failed_save_leaves_the_old_one_and_nothing_else(path: Path) -> None:
    save(path, b"old")
    with no_file_over(100), pytest.raises(OSError, match="File too large"):
        save(path, PAYLOAD)
    assert load(path) == b"old"
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


def test_whoever_is_killed_while_saving_leaves_a_whole_one(path: Path) -> None:
    saver = (
        "import sys; from pathlib import Path; from omniwatch.sidecar.checkpoint import save\n"
        "number = 0\n"
        "while True:\n"
        "    number += 1\n"
        "    save(Path(sys.argv[1]), b'%d' % number * 20_000)\n"
        "    if number == 3: print(flush=True)\n"
    )
    for _ in range(5):
        command = [sys.executable, "-c", saver, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
        payload = load(path)
        assert payload is not None
        assert len(payload) % 20_000 == 0
        assert len(set(payload.decode())) <= len(payload) // 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_neither_waited_for_nor_replaced(path: Path, kind: str) -> None:
    KINDS[kind](path)
    before = path.lstat()
    with pytest.raises(CheckpointError, match=r"checkpoint: (not a regular file|Is a directory)$"):
        load(path)
    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        save(path, PAYLOAD)
    assert path.lstat() == before
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_what_is_of_another_account_is_neither_believed_nor_replaced(path: Path) -> None:
    save(path, PAYLOAD)
    os.chown(path, 12345, 12345)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"checkpoint: belongs to another account, 12345$"):
        load(path)
    with pytest.raises(OSError, match="belongs to another account, 12345"):
        save(path, b"other")
    assert path.read_bytes() == before
