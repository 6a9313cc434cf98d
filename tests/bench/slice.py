"""How fast, and in how much memory, `omniwatch slice apply` writes a checkpoint of 8 GB, half of whose experts stay.

The peer is `cp` of as many bytes, by turns with it. Both end when the disk has them. The median of the rounds counts.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers import slices
from helpers.checkpoints import config
from omniwatch.desk.plan.model import Tensor, parse, tensors

LEAST_RATIO = 0.8
MOST_MB = 150
ROUNDS = 3
BYTES = 8e9
EXPERTS, HIDDEN, WIDTH = 128, 2048, 768
SHARD_BYTES = 2e9
PIECE = 16 * 2**20


def config_text() -> bytes:
    """A model of the released one's experts, of as many layers as BYTES hold."""
    found = json.loads(config())
    layers = max(1, round(BYTES / (EXPERTS * 3 * HIDDEN * WIDTH * 2)))
    text = {
        "hidden_size": HIDDEN,
        "moe_intermediate_size": WIDTH,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 8,
    }
    found["thinker_config"]["text_config"] |= {**text, "num_hidden_layers": layers, "vocab_size": 152_064}
    return json.dumps(found).encode()


def make(directory: Path) -> tuple[int, int]:
    """Write it in shards of bytes that no disk can pack; return its bytes and its layers."""
    directory.mkdir()
    (directory / "config.json").write_bytes(config_text())
    model = parse(config_text(), "config.json")
    groups: list[list[Tensor]] = [[]]
    filled = 0
    for tensor in tensors(model):
        if groups[-1] and filled + 2 * tensor.parameters > SHARD_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(tensor)
        filled += 2 * tensor.parameters
    noise = os.urandom(PIECE)
    total, places = 0, {}
    for number, group in enumerate(groups, 1):
        name = f"model-{number:05}-of-{len(groups):05}.safetensors"
        at, entries = 0, {}
        for tensor in group:
            size = 2 * tensor.parameters
            entries[tensor.name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [at, at + size]}
            at += size
        header = msgspec.json.encode(entries)
        with (directory / name).open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for begin in range(0, at, PIECE):
                file.write(noise[: min(PIECE, at - begin)])
            # Else the disk is still busy with these bytes while the first of both is timed.
            file.flush()
            os.fsync(file.fileno())
        total += at
        places |= dict.fromkeys(entries, name)
    (directory / "model.safetensors.index.json").write_bytes(
        msgspec.json.encode({"metadata": {"total_size": total}, "weight_map": places})
    )
    return total, model.thinker_config.text_config.num_hidden_layers


def cp_s(folder: Path, size: int) -> float:
    """Return how long `cp` takes for as many bytes of the same files, and the disk to have them, in seconds."""
    (folder / "copied").mkdir()
    began = time.perf_counter()
    left = size
    for path in sorted((folder / "model").glob("*.safetensors")):
        if left <= 0:
            break
        target = folder / "copied" / path.name
        if left < path.stat().st_size:
            command = ["dd", f"if={path}", f"of={target}", "bs=1M", f"count={left // 2**20}", "status=none"]
            subprocess.run(command, check=True)
        else:
            subprocess.run(["cp", "--reflink=never", str(path), str(target)], check=True)
        left -= path.stat().st_size
        subprocess.run(["sync", str(target)], check=True)
    took = time.perf_counter() - began
    shutil.rmtree(folder / "copied")
    return took


def slice_s(folder: Path) -> tuple[float, int]:
    """Return how long `omniwatch slice apply` takes, in seconds, and the bytes that it wrote."""
    command = [sys.executable, "-m", "omniwatch", "slice", "apply", "model", "out", "--keep", "keep.json"]
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - began
    written = sum(path.stat().st_size for path in (folder / "out").iterdir())
    shutil.rmtree(folder / "out")
    return took, written


def main() -> int:
    """Print both; fail below the least ratio, or above the most memory."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        folder = Path(directory)
        total, layers = make(folder / "model")
        kept = {"thinker": {layer: tuple(range(0, EXPERTS, 2)) for layer in range(layers)}}
        slices.keep_file(folder / "keep.json", folder / "model", kept, experts={"thinker": EXPERTS})
        ratios = []
        for _ in range(ROUNDS):
            took, written = slice_s(folder)
            peer = cp_s(folder, written)
            ratios.append(peer / took)
            print(
                f"of {total / 1e9:.1f} GB {written / 1e9:.1f} written: {written / 1e6 / took:.0f} MB/s, "
                f"cp {written / 1e6 / peer:.0f} MB/s, ratio {peer / took:.2f}",
                flush=True,
            )
    # Of the largest child: all others are small.
    megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    ratio = statistics.median(ratios)
    print(
        f"ratio {ratio:.2f}, at least {LEAST_RATIO} is asked; memory {megabytes:.0f} MB, at most {MOST_MB} is asked"
    )
    return ratio < LEAST_RATIO or megabytes > MOST_MB


if __name__ == "__main__":
    sys.exit(main())
