"""Each refusal of `slice apply`: its line, exit code 2, nothing written, nothing left over."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers import slices
from omniwatch.cli import main
from omniwatch.desk.slice import SliceError, apply

KEPT = {"thinker": {0: (0, 1, 3), 1: (1, 2, 3)}, "talker": {0: (0, 4), 1: (2, 3)}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    slices.keep_file(tmp_path / "keep.json", slices.made(tmp_path / "model", "sharded"), KEPT)
    return tmp_path


def refusal(folder: Path, out: str = "out") -> str:
    """The one line, with nothing changed by it, neither dry nor in earnest."""
    before = slices.tree(folder)
    lines = []
    for more in (["--dry-run"], []):
        arguments = [str(folder / "model"), str(folder / out), "--keep", str(folder / "keep.json"), *more]
        done = CliRunner().invoke(main, ["slice", "apply", *arguments])
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        assert slices.tree(folder) == before
        assert done.stderr.startswith("Error: ")
        assert len(done.stderr.splitlines()) == 1
        lines.append(done.stderr)
    assert lines[0] == lines[1]
    return lines[0]


def kept(folder: Path, **changes: Any) -> None:
    slices.keep_file(folder / "keep.json", folder / "model", {**KEPT, **changes})


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_fewer_than_a_token_takes(folder: Path) -> None:
    kept(folder, talker={0: (1,), 1: (2,)})
    assert "talker: 1 experts, and a token takes 2: at least 2 must stay" in refusal(folder)


def test_layers_of_unequal_numbers(folder: Path) -> None:
    kept(folder, thinker={0: (1, 2, 3), 1: (1, 2)})
    assert "thinker: 3 experts in layer 0, 2 in layer 1: a model has one number" in refusal(folder)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ((1, 2, 2), "thinker, layer 0: expert 2 twice"),
        ((1, 2, 4), "thinker, layer 0: expert 4, and the numbers go from 0 to 3"),
    ],
)
def test_a_number_twice_or_out_of_range(folder: Path, numbers: tuple[int, ...], says: str) -> None:
    kept(folder, thinker={0: numbers, 1: (1, 2, 3)})
    assert says in refusal(folder)


def test_a_negative_number(folder: Path) -> None:
    kept(folder, thinker={0: (-1, 2, 3), 1: (1, 2, 3)})
    assert "no keep.json: Expected `int` >= 0" in refusal(folder)


@pytest.mark.parametrize(
    ("layers", "says"),
    [({0: (1, 2)}, "layer 1 is missing"), ({0: (1, 2), 1: (1, 2), 2: (1, 2)}, "layer 2 has no experts")],
)
def test_other_layers_than_the_model_has(folder: Path, layers: dict[int, tuple[int, ...]], says: str) -> None:
    kept(folder, thinker=layers)
    assert says in refusal(folder)


def test_an_architecture_that_is_not_known(folder: Path) -> None:
    edit(folder / "model/config.json", lambda found: found.update(model_type="qwen4_omni"))
    assert "model_type: expected qwen3_omni_moe" in refusal(folder)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_out_that_is_there(folder: Path, make: Callable[[Path], Any]) -> None:
    make(folder / "out")
    assert "out: is there already" in refusal(folder)


def test_out_within_the_model(folder: Path) -> None:
    assert "model/out: is within" in refusal(folder, "model/out")
    (folder / "linked").symlink_to(folder / "model")
    assert "linked/out: is within" in refusal(folder, "linked/out")


def test_out_where_no_folder_is(folder: Path) -> None:
    assert "nowhere: No such file or directory" in refusal(folder, "nowhere/out")


def test_keep_of_another_model(folder: Path) -> None:
    edit(folder / "keep.json", lambda found: found.update(config_sha256="ab" * 32))
    assert "keep.json: of another model: it names a config.json of digest abababababab" in refusal(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"config_sha256": "a", "parts": {"thinker": 3}}', "\xff"])
def test_a_keep_that_is_none(folder: Path, text: str) -> None:
    (folder / "keep.json").write_text(text, encoding="latin-1")
    assert "keep.json" in refusal(folder)


def test_parts_that_are_not_there(folder: Path) -> None:
    edit(folder / "keep.json", lambda found: found.update(parts={}))
    assert "expected thinker, talker or both" in refusal(folder)
    (folder / "keep.json").unlink()
    slices.made(folder / "silent", "silent")
    (folder / "model").rename(folder / "speaks")
    (folder / "silent").rename(folder / "model")
    slices.keep_file(folder / "keep.json", folder / "model", KEPT)
    assert "talker: " in refusal(folder)


def test_a_shard_cut_short(folder: Path) -> None:
    shard = folder / "model/model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert "not whole" in refusal(folder)


@pytest.mark.parametrize(
    "name",
    [
        "thinker.model.layers.0.mlp.experts.0.gate_proj.invented",
        "thinker.model.layers.0.mlp.experts.0.new_proj.weight",
        "thinker.model.layers.0.mlp.gate.e_score_correction_bias",
        "thinker.model.layers.0.mlp.experts.input_global_scale",
        "thinker.model.layers.0.block_sparse_moe.experts.0.w1.weight",
        "model.layers.0.mlp.experts.0.gate_proj.weight",
    ],
)
def test_a_tensor_that_is_not_understood_is_named(folder: Path, name: str) -> None:
    (folder / "model/model.safetensors.index.json").unlink()
    for path in (folder / "model").glob("*.safetensors"):
        path.unlink()
    whole = slices.contents("sharded", 1)
    slices.write(folder / "model/model.safetensors", {**whole, name: slices.Held("BF16", (1,), b"ab")})
    assert name in refusal(folder)


def test_an_expert_that_is_not_whole(folder: Path) -> None:
    (folder / "model/model.safetensors.index.json").unlink()
    for path in (folder / "model").glob("*.safetensors"):
        path.unlink()
    whole = slices.contents("sharded", 1)
    one = {
        name: held
        for name, held in whole.items()
        if name != "talker.model.layers.1.mlp.experts.3.up_proj.weight"
    }
    slices.write(folder / "model/model.safetensors", one)
    assert "talker, layer 1: expert 3 lacks up_proj.weight, which others have" in refusal(folder)
    none = {name: held for name, held in whole.items() if "talker.model.layers.1.mlp.experts.3." not in name}
    slices.write(folder / "model/model.safetensors", none)
    assert "talker, layer 1: expert 3 is missing" in refusal(folder)


def test_a_tensor_in_two_files(folder: Path) -> None:
    shard = folder / "model/model-00001-of-00003.safetensors"
    index = folder / "model/model.safetensors.index.json"
    (folder / "model/model-00004.safetensors").write_bytes(shard.read_bytes())
    edit(
        index, lambda found: found["weight_map"].update({"thinker.lm_head.weight": "model-00004.safetensors"})
    )
    assert "two files hold it" in refusal(folder) or "says that" in refusal(folder)


def test_config_with_another_number_than_the_files(folder: Path) -> None:
    edit(
        folder / "model/config.json",
        lambda found: found["thinker_config"]["text_config"].update(num_experts=5),
    )
    slices.keep_file(folder / "keep.json", folder / "model", KEPT)
    assert "config.json says 5 experts" in refusal(folder)


def test_no_space_is_said_before_anything_is_written(folder: Path) -> None:
    found = apply.check(folder / "model", folder / "out", folder / "keep.json")
    before = slices.tree(folder)
    with pytest.raises(SliceError, match=r"0\.02 GB to write, and its disk has 0\.01 GB free"):
        apply.write(found, free=lambda path: 5_000_000)
    assert slices.tree(folder) == before


def test_a_disk_that_is_full_in_the_middle_leaves_nothing(folder: Path) -> None:
    """The kernel refuses to let a file grow beyond the limit."""
    before = slices.tree(folder)
    limit = 6000
    assert any(len(content) > limit for name, content in before.items() if "safetensors" in name)
    done = subprocess.run(
        [sys.executable, "-m", "omniwatch", "slice", "apply", "model", "out", "--keep", "keep.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 2
    assert done.stderr == "Error: out: File too large: nothing is kept of it\n"
    assert slices.tree(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == ["keep.json", "model"]


def test_a_model_that_changes_meanwhile(folder: Path) -> None:
    found = apply.check(folder / "model", folder / "out", folder / "keep.json")
    touched: list[int] = []

    def told(count: int) -> None:
        if not touched:
            os.utime(folder / "model/model-00001-of-00003.safetensors", ns=(1, 1))
        touched.append(count)

    with pytest.raises(SliceError, match="its files were changed meanwhile"):
        apply.write(found, told=told)
    assert sorted(path.name for path in folder.iterdir()) == ["keep.json", "model"]


def test_two_at_once(folder: Path) -> None:
    found = apply.check(folder / "model", folder / "out", folder / "keep.json")
    (folder / ".out.slice").mkdir()
    with (folder / ".out.slice/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SliceError, match="another slice is making it now"):
            apply.write(found)
        assert (folder / ".out.slice/lock").exists()
    apply.write(found)
    assert sorted(path.name for path in folder.iterdir()) == ["keep.json", "model", "out"]


def test_dry_run_prints_what_plan_counts_and_writes_nothing(folder: Path) -> None:
    before = slices.tree(folder)
    arguments = [str(folder / "model"), str(folder / "out"), "--keep", str(folder / "keep.json"), "--dry-run"]
    done = CliRunner().invoke(main, ["slice", "apply", *arguments])
    assert (done.exit_code, done.stderr) == (0, "")
    assert slices.tree(folder) == before
    assert "thinker: 4 experts a layer, 3 after" in done.stdout
    assert "talker: 5 experts a layer, 2 after" in done.stdout
    assert done.stdout.splitlines()[0].split() == ["component", "GB", "GB", "after"]


def test_in_earnest_it_says_what_it_wrote(folder: Path) -> None:
    arguments = [str(folder / "model"), str(folder / "out"), "--keep", str(folder / "keep.json"), "--hash"]
    done = CliRunner().invoke(main, ["slice", "apply", *arguments])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{folder}/out: 0.00 GB; {folder}/out/SLICE.md says what it is\n"
