"""What a quantiser's settings say of experts by their numbers, before and after a cut."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers import slices
from omniwatch.desk.slice import SliceError, apply, config, keep_file, source
from omniwatch.desk.slice.quantization import Renumbering

KEPT = {"thinker": {0: (0, 2, 3), 1: (1, 2, 3)}}


@pytest.fixture(scope="module")
def renumbering(tmp_path_factory: pytest.TempPathFactory) -> Renumbering:
    folder = tmp_path_factory.mktemp("settings")
    model = slices.made(folder / "model", "single")
    keep, _ = keep_file.read(slices.keep_file(folder / "keep.json", model, KEPT))
    return Renumbering(source.read(model), keep)


def at(layer: int, number: int, rest: str = ".down_proj", part: str = "thinker") -> str:
    return f"{part}.model.layers.{layer}.mlp.experts.{number}{rest}"


def test_names_are_renumbered_or_go_with_their_expert(renumbering: Renumbering) -> None:
    before = ["lm_head", at(0, 1), at(0, 2), at(1, 3, ""), at(0, 4, part="talker"), "mlp.gate"]
    wanted = ["lm_head", at(0, 1), at(1, 2, ""), at(0, 4, part="talker"), "mlp.gate"]
    for key in ("ignore", "modules_to_not_convert"):
        assert renumbering.settings({key: before}, "here") == {key: wanted}


def test_keys_are_renumbered_with_what_is_under_them(renumbering: Renumbering) -> None:
    before = {"extra_config": {at(0, 3): {"bits": 8}, at(0, 1): {"bits": 16}}}
    assert renumbering.settings(before, "here") == {"extra_config": {at(0, 2): {"bits": 8}}}


@pytest.mark.parametrize(
    "pattern",
    [
        "re:.*experts.*",
        r"re:.*mlp\.experts\.\d+\.down_proj$",
        r"-:.*layers\.1\.mlp\.experts\..*",
        "re:visual.*",
        r"+:thinker\.model\.layers\.0\..*",
        r"re:.*\.experts\.[0-9]+\..*",
    ],
)
def test_a_pattern_that_takes_all_of_a_layer_stays(renumbering: Renumbering, pattern: str) -> None:
    assert renumbering.settings([pattern], "here") == [pattern]


@pytest.mark.parametrize("mark", ["re:", "-:", "+:"])
def test_a_pattern_that_takes_some_becomes_their_names(renumbering: Renumbering, mark: str) -> None:
    found = renumbering.settings({f"{mark}.*thinker.*experts\\.[12]\\.down_proj": {"bits": 8}}, "here")
    assert all(key.startswith(mark) for key in found)
    every = [
        at(layer, number, rest)
        for layer in (0, 1)
        for number in range(3)
        for rest in ("", ".down_proj", ".up_proj")
    ]
    taken = [name for name in every if any(re.match(key.removeprefix(mark), name) for key in found)]
    # Of layer 0 the second expert is gone, the third is now the second; of layer 1 both are there, one number less.
    assert taken == [at(0, 1), at(1, 0), at(1, 1)]


@pytest.mark.parametrize(
    "entry",
    [
        "mlp.experts.3.down_proj",
        "model.layers.0.mlp.experts.1.up_proj",
        r"re:.*\.1\..*",
        r"re:layers\.0\.mlp\.experts\.1",
        "re:(experts",
    ],
)
def test_an_entry_that_is_not_understood_is_named(renumbering: Renumbering, entry: str) -> None:
    with pytest.raises(SliceError, match=re.escape(entry)):
        renumbering.settings({"ignore": [entry]}, "here")


def test_a_value_that_names_an_expert_is_refused(renumbering: Renumbering) -> None:
    with pytest.raises(SliceError, match="names an expert by its number"):
        renumbering.settings({"invented": at(0, 1)}, "here")


def test_settings_in_config_and_beside_it_are_renumbered(tmp_path: Path) -> None:
    model = slices.made(tmp_path / "model", "gptq")
    settings: dict[str, Any] = {
        "quant_method": "gptq",
        "bits": 4,
        "modules_to_not_convert": [at(1, 3), at(1, 0)],
    }
    document = json.loads((model / "config.json").read_text())
    document["thinker_config"]["quantization_config"] = settings
    (model / "config.json").write_text(json.dumps(document))
    (model / "quantize_config.json").write_text(json.dumps(settings))
    keep = slices.keep_file(tmp_path / "keep.json", model, KEPT)
    apply.write(apply.check(model, tmp_path / "out", keep))
    after = json.loads((tmp_path / "out/config.json").read_text())["thinker_config"]["quantization_config"]
    assert after == {**settings, "modules_to_not_convert": [at(1, 2)]}
    assert json.loads((tmp_path / "out/quantize_config.json").read_text()) == after


def test_both_names_of_the_number_are_set(tmp_path: Path) -> None:
    model = slices.made(tmp_path / "model", "single")
    document = json.loads((model / "config.json").read_text())
    document["thinker_config"]["text_config"]["num_local_experts"] = 4
    (model / "config.json").write_text(json.dumps(document))
    keep, _ = keep_file.read(slices.keep_file(tmp_path / "keep.json", model, KEPT))
    text = json.loads(config.cut(source.read(model), keep))["thinker_config"]["text_config"]
    assert (text["num_experts"], text["num_local_experts"]) == (3, 3)
