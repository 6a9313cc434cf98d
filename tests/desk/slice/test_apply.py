"""What `slice apply` writes, in every layout, and that it is whole after any kill."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from helpers import slices
from helpers.killed_slices import SMALL, Scene, die_at
from helpers.kills import killed_at
from omniwatch.desk.plan import planning
from omniwatch.desk.plan.device import of_size
from omniwatch.desk.plan.memory import Wanted, compute
from omniwatch.desk.slice import apply
from omniwatch.desk.slice.apply import Cutting


def cutting(folder: Path, layout: str = "sharded", seed: int = 1) -> Cutting:
    model = slices.made(folder / "model", layout, seed)
    keep = slices.keep_file(folder / "keep.json", model, slices.draw_kept(layout, seed))
    return apply.check(model, folder / "out", keep)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layout", slices.LAYOUTS)
def test_the_tensors_are_those_that_were_kept(tmp_path: Path, layout: str, seed: int) -> None:
    model = slices.made(tmp_path / "model", layout, seed)
    kept = slices.draw_kept(layout, seed)
    apply.write(apply.check(model, tmp_path / "out", slices.keep_file(tmp_path / "keep.json", model, kept)))
    assert slices.read(tmp_path / "out") == slices.cut(slices.contents(layout, seed), kept)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keep.json", "model", "out"]


@pytest.mark.parametrize("layout", slices.LAYOUTS)
def test_plan_reads_what_was_written(tmp_path: Path, layout: str) -> None:
    """Different numbers in thinker and talker, as config.json has them."""
    found = cutting(tmp_path, layout)
    apply.write(found)
    name, model, weights = planning.read(tmp_path / "out")
    result = compute(Wanted(name=name, model=model, weights=weights, device=of_size(64)))
    assert result.weights_bytes == sum(tensor.size for file in found.files for tensor in file.tensors)
    assert all(part.exact for part in result.components)
    if layout not in ("gptq", "fp8", "fused"):
        assert not [note for note in result.notes if "by config.json" in note]


def test_config_has_the_numbers_where_the_original_has_them(tmp_path: Path) -> None:
    model = slices.made(tmp_path / "model", "sharded")
    kept = {"thinker": {0: (0, 2, 3), 1: (0, 1, 2)}, "talker": {0: (1, 4), 1: (0, 3)}}
    apply.write(apply.check(model, tmp_path / "out", slices.keep_file(tmp_path / "keep.json", model, kept)))
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("model", "out"))
    before["thinker_config"]["text_config"]["num_experts"] = 3
    before["talker_config"]["text_config"]["num_local_experts"] = 2
    assert after == before


def test_files_are_no_larger_than_the_largest_before(tmp_path: Path) -> None:
    found = cutting(tmp_path, "sharded")
    largest = max(path.stat().st_size for path in (tmp_path / "model").glob("*.safetensors"))
    apply.write(found)
    sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.safetensors")]
    assert len(sizes) > 1
    # The header of the largest may be longer: it lists more tensors.
    assert max(sizes) <= largest + 4096


def test_what_holds_for_both_comes_along_through_links(tmp_path: Path) -> None:
    model = slices.made(tmp_path / "blobs", "single")
    linked = tmp_path / "model"
    linked.mkdir()
    for path in model.iterdir():
        (linked / path.name).symlink_to(path)
    keep = slices.keep_file(tmp_path / "keep.json", linked, {"thinker": {0: (1, 3), 1: (0, 1)}})
    apply.write(apply.check(linked, tmp_path / "out", keep))
    out = tmp_path / "out"
    assert not [path for path in out.iterdir() if path.is_symlink()]
    names = {path.name for path in out.iterdir()}
    assert names == {"SLICE.md", "keep.json", "config.json", "model.safetensors", *slices.ASIDE} - {
        "README.md"
    }
    assert (out / "chat_template.jinja").read_text() == slices.ASIDE["chat_template.jinja"]


def test_the_card_names_every_file_by_its_digest(tmp_path: Path) -> None:
    import hashlib

    found = cutting(tmp_path)
    apply.write(found, hashes=True)
    card = (tmp_path / "out/SLICE.md").read_text()
    for folder in ("out", "model"):
        for path in (tmp_path / folder).iterdir():
            if path.name != "SLICE.md":
                assert f"| {path.name} |" in card
                assert hashlib.sha256(path.read_bytes()).hexdigest() in card
    assert found.digest in card
    assert "left out, as it is about the original: README.md" in card


def test_the_digest_is_of_the_headers_and_not_of_the_weights(tmp_path: Path) -> None:
    first = cutting(tmp_path)
    shard = tmp_path / "model/model-00001-of-00003.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert apply.check(tmp_path / "model", tmp_path / "out", tmp_path / "keep.json").digest == first.digest
    content[8] ^= 0
    shard.write_bytes(bytes(content).replace(b'"format": "pt"', b'"format": "np"', 1))
    assert apply.check(tmp_path / "model", tmp_path / "out", tmp_path / "keep.json").digest != first.digest


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"), "sharded")


@pytest.mark.slow
@pytest.mark.parametrize("place", range(20))
def test_killed_anywhere_it_goes_on_to_the_same_bytes(scene: Scene, place: int) -> None:
    _, wrong = scene.play(random.Random(place))
    assert wrong == ""


def test_it_goes_on_and_does_not_begin_again(tmp_path: Path) -> None:
    found = cutting(tmp_path)
    killed_at(1 << 30, tmp_path, lambda: apply.write(found, told=die_at(found.size // 2), sync_bytes=SMALL))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / ".out.slice/files").iterdir()}
    there: list[int] = []
    apply.write(found, goes_on=there.append, sync_bytes=SMALL)
    assert there[0] > found.size // 3
    whole = found.files[0].name
    assert (tmp_path / "out" / whole).stat().st_mtime_ns == before[whole]


@pytest.mark.parametrize(
    "changed", ["keep.json", "model/tokenizer.json", "model/model-00002-of-00003.safetensors"]
)
def test_with_another_input_it_begins_again(tmp_path: Path, changed: str) -> None:
    found = cutting(tmp_path)
    killed_at(1 << 30, tmp_path, lambda: apply.write(found, told=die_at(found.size // 2), sync_bytes=SMALL))
    path = tmp_path / changed
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if "safetensors" in changed else content + b" ")
    again = apply.check(tmp_path / "model", tmp_path / "out", tmp_path / "keep.json")
    there: list[int] = []
    apply.write(again, goes_on=there.append)
    assert there == []
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    other = apply.check(tmp_path / "model", fresh / "out", tmp_path / "keep.json")
    apply.write(other)
    assert slices.tree(tmp_path / "out") == slices.tree(fresh / "out")


def test_half_a_file_that_was_not_forced_to_the_disk_is_not_believed(tmp_path: Path) -> None:
    """After a power cut, the end of a file may be there as zeros."""
    found = cutting(tmp_path)
    killed_at(1 << 30, tmp_path, lambda: apply.write(found, told=die_at(found.size // 2)))
    for path in (tmp_path / ".out.slice/files").glob("*.safetensors"):
        if path.stat().st_size < next(file.size for file in found.files if file.name == path.name):
            path.write_bytes(bytes(path.stat().st_size))
    apply.write(found)
    shutil.copytree(tmp_path / "model", tmp_path / "clean/model", copy_function=shutil.copy2)
    clean = apply.check(tmp_path / "clean/model", tmp_path / "clean/out", tmp_path / "keep.json")
    apply.write(clean)
    assert slices.tree(tmp_path / "out") == slices.tree(tmp_path / "clean/out")
