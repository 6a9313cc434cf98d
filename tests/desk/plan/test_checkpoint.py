"""Checkpoints as they lie on a disk: whole, in shards, and damaged in the ways downloads and archives are."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.checkpoints import CONFIG, TEXT, config, file, made
from omniwatch.desk.plan import checkpoint, components, planning
from omniwatch.desk.plan.device import of_size
from omniwatch.desk.plan.memory import Result, Wanted, compute
from omniwatch.desk.plan.model import PlanError, Tensor, parse, tensors


def planned(directory: Path, *types: str, **more: Any) -> Result:
    name, model, weights = planning.read(directory)
    more["types"] = components.parse_types(types)
    return compute(Wanted(name=name, model=model, weights=weights, device=of_size(64), **more))


def refusal(directory: Path) -> str:
    with pytest.raises(PlanError) as error:
        planned(directory)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("shards", [1, 3])
def test_weights_are_the_sum_of_the_tensors_bytes(tmp_path: Path, shards: int) -> None:
    model, size = made(tmp_path, shards)
    result = planned(tmp_path)
    assert result.weights_bytes == size == 2 * result.parameters
    assert result.parameters == sum(tensor.parameters for tensor in tensors(model))
    assert {part.type for part in result.components} == {"bf16"}
    assert all(part.exact for part in result.components)
    assert result.notes == []


def test_what_is_cut_or_stored_otherwise_is_computed_the_rest_stays_exact(tmp_path: Path) -> None:
    made(tmp_path)
    exact = {
        part.name: part.exact
        for part in planned(tmp_path, "thinker=int4", experts={"thinker": 3, "talker": 3}).components
    }
    assert {name for name, is_exact in exact.items() if not is_exact} == {
        "thinker_experts",
        "thinker_attention",
        "thinker_routers",
        "talker_experts",
        "talker_rest",
    }


def test_a_tied_head_is_counted_once(tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    tied = tmp_path / "tied"
    apart.mkdir()
    tied.mkdir()
    made(apart)
    thinker = {**CONFIG["thinker_config"], "text_config": {**TEXT, "tie_word_embeddings": True}}
    model, size = made(tied, thinker_config=thinker)
    assert "thinker.lm_head.weight" not in {tensor.name for tensor in tensors(model)}
    assert planned(tied).weights_bytes == size == planned(apart).weights_bytes - 2 * 50 * 16


def test_a_config_alone_is_enough(tmp_path: Path) -> None:
    _model, size = made(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    for path in (tmp_path, tmp_path / "config.json"):
        result = planned(path)
        assert result.weights_bytes == size
        assert not any(part.exact for part in result.components)


def test_a_quantised_checkpoint_is_taken_as_it_is(tmp_path: Path) -> None:
    """GPTQ packs eight 4-bit weights into an int32, and adds scales."""
    stated = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    made(tmp_path, quantization_config=stated)
    model = parse(config(), "config.json")
    entries: dict[str, Any] = {}
    at = 0
    for tensor in tensors(model):
        packed = ".experts." in tensor.name and tensor.name.startswith("thinker")
        dtype, shape = (
            ("I32", (tensor.shape[0], -(-tensor.shape[1] // 8))) if packed else ("BF16", tensor.shape)
        )
        count = Tensor("", shape).parameters
        end = at + count * (4 if packed else 2)
        name = tensor.name.replace(".weight", ".qweight") if packed else tensor.name
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    header = json.dumps(entries).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(at))
    result = planned(tmp_path)
    assert result.weights_bytes == at
    types = {part.name: part.type for part in result.components}
    assert types["thinker_experts"] == "int4"
    assert types["talker_experts"] == "bf16"


def test_a_config_that_states_a_quantisation_without_its_files(tmp_path: Path) -> None:
    stated = {"quant_method": "awq", "bits": 4, "group_size": 32}
    (tmp_path / "config.json").write_bytes(config(quantization_config=stated))
    result = planned(tmp_path)
    types = {part.name: part.type for part in result.components}
    assert (types["thinker_experts"], types["talker_experts"]) == ("int4:32", "bf16")
    assert "assumed for the thinker's experts and attention" in result.notes[0]


def test_an_index_that_names_what_its_file_does_not_hold(tmp_path: Path) -> None:
    made(tmp_path, 2)
    index = json.loads((tmp_path / checkpoint.INDEX).read_text())
    index["weight_map"]["thinker.invented"] = "model-00001-of-00002.safetensors"
    (tmp_path / checkpoint.INDEX).write_text(json.dumps(index))
    assert "says that model-00001-of-00002.safetensors holds thinker.invented, which it does not" in refusal(
        tmp_path
    )


def test_an_index_with_another_total_is_told_of_and_not_believed(tmp_path: Path) -> None:
    _, size = made(tmp_path, 2)
    index = json.loads((tmp_path / checkpoint.INDEX).read_text())
    index["metadata"]["total_size"] = size + 1
    (tmp_path / checkpoint.INDEX).write_text(json.dumps(index))
    result = planned(tmp_path)
    assert result.weights_bytes == size
    assert f"says {size + 1} bytes, the files hold {size}" in result.notes[0]


def test_a_shard_that_is_not_there(tmp_path: Path) -> None:
    made(tmp_path, 3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "names model-00002-of-00003.safetensors, which is not there: a download cut short?" in refusal(
        tmp_path
    )


def test_shards_without_their_index(tmp_path: Path) -> None:
    made(tmp_path, 3)
    (tmp_path / checkpoint.INDEX).unlink()
    assert "a download cut short?" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "weights.bin"])
def test_an_index_may_name_only_files_beside_it(tmp_path: Path, name: str) -> None:
    made(tmp_path, 2)
    (tmp_path / checkpoint.INDEX).write_text(json.dumps({"weight_map": {"thinker.x": name}}))
    assert "is no name of a .safetensors file beside it" in refusal(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"weight_map": []}', '{"weight_map": {"a": 1}}'])
def test_an_index_that_is_none(tmp_path: Path, text: str) -> None:
    made(tmp_path)
    (tmp_path / checkpoint.INDEX).write_text(text)
    assert checkpoint.INDEX in refusal(tmp_path)


def test_a_header_of_a_terabyte_is_refused_without_reading_it(tmp_path: Path) -> None:
    made(tmp_path)
    with (tmp_path / "model.safetensors").open("wb") as sparse:
        sparse.write(struct.pack("<Q", 10**12))
        sparse.truncate(2 * 10**12)
    assert "its header says it has 1.0 TB" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "0 bytes, too short for a safetensors file"),
        (b"PK\x03\x04", "too short for a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "no safetensors file"),
        (struct.pack("<Q", 50) + b"{}", "its header has 50 bytes, the file 10: not whole"),
        (struct.pack("<Q", 4) + b"ABCD", "its header is not JSON: not a safetensors file"),
        (struct.pack("<Q", 2) + b"[]", "its header is no JSON object"),
        (struct.pack("<Q", 9) + b'{"a": 1} ', "a: no dtype, shape and data_offsets"),
    ],
)
def test_what_is_no_safetensors_file(tmp_path: Path, content: bytes, says: str) -> None:
    made(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    assert says in refusal(tmp_path)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 9]}, "takes 8 bytes, the header says 9"),
        ({"dtype": "BF16", "shape": [10**30], "data_offsets": [0, 8]}, "takes"),
        ({"dtype": "BF16", "shape": [2], "data_offsets": [0, 10**15]}, "not whole, or damaged"),
        ({"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]}, "of the wrong type"),
        ({"dtype": "BF16", "shape": [True], "data_offsets": [0, 2]}, "of the wrong type"),
        ({"dtype": "Q3", "shape": [2], "data_offsets": [0, 4]}, "unknown type Q3"),
        ({"dtype": ["BF16"], "shape": [2], "data_offsets": [0, 4]}, "of the wrong type"),
        ({"dtype": "BF16", "shape": [2], "data_offsets": [0]}, "no dtype, shape and data_offsets"),
    ],
)
def test_a_header_that_contradicts_itself(tmp_path: Path, entry: dict[str, Any], says: str) -> None:
    model, _ = made(tmp_path)
    file(tmp_path / "model.safetensors", tensors(model), **{"thinker.lm_head.weight": entry})
    assert says in refusal(tmp_path)


def test_a_file_cut_short(tmp_path: Path) -> None:
    made(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-1])
    assert "not whole, or damaged" in refusal(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole + b"\0")
    assert "its tensors end at byte" in refusal(tmp_path)


def test_another_models_tensors(tmp_path: Path) -> None:
    made(tmp_path)
    file(tmp_path / "model.safetensors", [Tensor("model.layers.0.weight", (2,))])
    assert "model.layers.0.weight: no tensor of a Qwen3-Omni" in refusal(tmp_path)


def test_a_config_that_the_files_contradict_is_told_of(tmp_path: Path) -> None:
    made(tmp_path)
    thinker = {**CONFIG["thinker_config"], "text_config": {**TEXT, "vocab_size": 60}}
    (tmp_path / "config.json").write_bytes(config(thinker_config=thinker))
    assert planned(tmp_path).notes == [
        "thinker: embedding, head: 1,920 parameters by config.json, 1,600 in the files"
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "expected qwen3_omni_moe or qwen3_omni_moe_thinker, got nothing"),
        (b'{"model_type": "llama"}', "got 'llama'"),
        (b'{"model_type": "qwen3_omni_moe"}', "missing required field `thinker_config`"),
        (
            config(code2wav_config={"hidden_size": "wide"}),
            r"Expected `int`, got `str` - at `$.code2wav_config.hidden_size`",
        ),
        (config(code2wav_config={"hidden_size": -1}), ">= 1"),
    ],
)
def test_a_config_that_does_not_hold(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert says in refusal(tmp_path)


def test_a_config_as_long_as_a_book(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as sparse:
        sparse.truncate(2**30)
    assert "more than 16 MiB" in refusal(tmp_path)


def test_a_thinker_alone_has_no_voice(tmp_path: Path) -> None:
    alone = {"model_type": "qwen3_omni_moe_thinker", **CONFIG["thinker_config"]}
    (tmp_path / "config.json").write_text(json.dumps(alone))
    result = planned(tmp_path)
    assert (result.talker, [stage.name for stage in result.stages]) == (False, ["thinker"])
    quiet = msgspec.json.decode(config(enable_audio_output=False))
    assert parse(json.dumps(quiet).encode(), "").talker is None
