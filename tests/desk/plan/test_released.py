"""The released model by arithmetic: each figure is what somebody else printed or published."""

from __future__ import annotations

import pytest

from omniwatch.desk.plan import bound, change, components, planning
from omniwatch.desk.plan.device import DEVICES, of_size
from omniwatch.desk.plan.memory import Result, Wanted, compute, kv_bytes_per_token
from omniwatch.desk.plan.model import PlanError, tensors
from omniwatch.desk.plan.released import RELEASED, RELEASED_NAME

GB = 1e9


def wanted(*types: str, device: str = "orin-64", **more: object) -> Wanted:
    return Wanted(
        name=RELEASED_NAME,
        model=RELEASED,
        device=DEVICES[device],
        types=components.parse_types(types),
        **more,  # type: ignore[arg-type]  # the test names the fields
    )


def computed(*types: str, **more: object) -> Result:
    return compute(wanted(*types, **more))


def test_the_released_model_has_as_many_parameters_as_its_own_print_outs_say() -> None:
    found = {"thinker": 0, "talker": 0, "code2wav": 0}
    for tensor in tensors(RELEASED):
        found[tensor.name.partition(".")[0]] += tensor.parameters
    assert found == {"thinker": 31_719_205_488, "talker": 3_324_596_480, "code2wav": 216_016_577}
    assert sum(found.values()) == computed().parameters == 35_259_818_545
    assert computed().weights_bytes / GB == pytest.approx(70.52, abs=0.005)


def test_its_components_are_counted_one_by_one() -> None:
    assert {part.name: part.parameters for part in computed().components} == {
        "thinker_experts": 48 * 128 * 3 * 2048 * 768,
        "thinker_attention": 906_180_608,
        "thinker_embedding": 622_854_144,
        "thinker_routers": 12_582_912,
        "audio_encoder": 647_927_168,
        "vision_encoder": 538_631_408,
        "talker_experts": 20 * 128 * 3 * 1024 * 384,
        "talker_rest": 163_127_296,
        "code_predictor": 141_570_304,
        "code2wav": 216_016_577,
    }


def test_the_text_thinker_in_int4_is_what_nvidia_measured() -> None:
    """15,938 "MB" for Qwen3-30B-A3B in GPTQ-Int4 (TensorRT Edge-LLM 0.7.0), if read as MiB."""
    text = [part.bytes for part in computed("int4").components if part.name.startswith("thinker_")]
    assert round(sum(text) / 2**20) == 15_914
    assert sum(text) / 2**20 == pytest.approx(15_938, rel=0.005)


@pytest.mark.parametrize(
    ("experts", "bf16", "int8", "int4"),
    [
        (128, 70.5, 38.1, 21.7),
        (96, 54.5, 30.0, 17.5),
        (64, 38.5, 21.8, 13.4),
        (32, 22.5, 13.7, 9.3),
        (8, 10.5, 7.6, 6.2),
    ],
)
def test_fewer_experts_and_fewer_bits(experts: int, bf16: float, int8: float, int4: float) -> None:
    found = [
        computed(*types, experts=dict.fromkeys(RELEASED.parts, experts)).weights_bytes / GB
        for types in ([], ["int8"], ["int4"])
    ]
    assert found == [pytest.approx(size, abs=0.05) for size in (bf16, int8, int4)]


def test_a_token_in_the_kv_cache() -> None:
    thinker, talker = RELEASED.thinker_config.text_config, RELEASED.talker_config
    assert talker is not None
    assert kv_bytes_per_token(thinker, "bf16") == 98_304
    assert kv_bytes_per_token(talker.text_config, "bf16") == 20_480
    assert kv_bytes_per_token(thinker, "fp8") == 49_152
    assert computed().kv_bytes_per_stream == (98_304 + 20_480) * 32_768


@pytest.mark.parametrize(
    ("types", "needs"), [([], 81.8), (["int8"], 49.4), (["thinker=int4"], 37.4), (["int4"], 32.9)]
)
def test_two_streams_whole(types: list[str], needs: float) -> None:
    assert computed(*types, streams=2).needed_bytes / GB == pytest.approx(needs, abs=0.05)


def test_the_verdict_adds_up() -> None:
    result = computed("thinker=int4", streams=2)
    assert result.needed_bytes == result.weights_bytes + result.kv_bytes + result.overhead_bytes
    assert result.needed_bytes == sum(stage.needed_bytes for stage in result.stages)
    assert result.spare_bytes == result.device.memory_bytes - result.system_bytes - result.needed_bytes
    assert result.fits == (result.spare_bytes >= 0)
    more = computed("thinker=int4", streams=result.streams_that_fit)
    assert more.fits
    assert not computed("thinker=int4", streams=result.streams_that_fit + 1).fits


def test_the_cheapest_change_is_one_that_fits() -> None:
    tight = wanted(device="orin-32")
    found = change.cheapest(tight)
    assert found is not None
    assert found.options == ["--kv-cache-dtype fp8", "--quantization all=int4"]
    again = computed("all=int4", device="orin-32", kv_type="fp8")
    assert again.fits
    assert again.needed_bytes == found.needed_bytes


def test_what_fits_needs_no_change_and_what_cannot_fit_has_none() -> None:
    assert change.cheapest(wanted("int4")) is None
    tiny = Wanted(name="", model=RELEASED, device=of_size(8))
    assert not compute(tiny).fits
    assert change.cheapest(tiny) is None


def test_a_model_without_a_talker() -> None:
    silent = computed("thinker=int4", talker=False)
    assert [stage.name for stage in silent.stages] == ["thinker"]
    spared = computed("thinker=int4").weights_bytes - silent.weights_bytes
    assert spared == 2 * (3_324_596_480 + 216_016_577)


@pytest.mark.parametrize(("types", "tokens_s"), [([], 33.7), (["int8"], 60.1), (["int4"], 99.9)])
def test_the_bound_is_bandwidth_by_bytes(types: list[str], tokens_s: float) -> None:
    asked = wanted(*types)
    found = bound.bound(asked, compute(asked))
    assert found is not None
    assert found.thinker_tokens_s == pytest.approx(tokens_s, abs=0.05)
    assert found.streams == pytest.approx(found.frames_s / 12.5)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"experts": {"thinker": 4}}, "4 experts: the thinker has 128 a layer and chooses 8"),
        ({"experts": {"thinker": 7}}, "chooses 8 of them for a token, so it can keep 8 to 128"),
        ({"max_model_len": 65537}, "the model takes 1 to 65536 tokens"),
        ({"streams": 0}, "expected at least 1"),
        ({"kv_type": "int3"}, "expected bf16 or fp8"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        computed(**more)


@pytest.mark.parametrize("text", ["int3", "int4:7", "fp8:128", "thinker=", "moe=int4", "int4:x"])
def test_types_that_there_are_not(text: str) -> None:
    with pytest.raises(PlanError, match="expected"):
        components.parse_types([text])


def test_the_released_model_needs_no_file() -> None:
    assert planning.read(None) == (RELEASED_NAME, RELEASED, None)
