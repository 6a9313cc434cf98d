"""Read the architecture of a Qwen3-Omni model from its config.json, and list the tensors that it has.

Names and shapes are those of transformers 5.14 (`Qwen3OmniMoeForConditionalGeneration`). A field that config.json leaves out
has the default that transformers gives it.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from omniwatch.system import user_file
from omniwatch.system.errors import UserError

CONFIG = "config.json"
MODEL_TYPES = ("qwen3_omni_moe", "qwen3_omni_moe_thinker")
CONFIG_BYTES = 16 * 2**20
"""Largest config.json that is read."""

Count = Annotated[int, Meta(ge=1, le=2**31)]
CountOrNone = Annotated[int, Meta(ge=0, le=2**31)]


class PlanError(UserError):
    """Input that no plan can be made of."""


class Audio(msgspec.Struct, frozen=True):
    """The audio encoder (`thinker_config.audio_config`)."""

    num_mel_bins: Count = 128
    encoder_layers: CountOrNone = 32
    encoder_ffn_dim: Count = 5120
    d_model: Count = 1280
    output_dim: Count = 3584
    downsample_hidden_size: Count = 480


class Vision(msgspec.Struct, frozen=True):
    """The vision encoder (`thinker_config.vision_config`)."""

    depth: CountOrNone = 27
    hidden_size: Count = 1152
    intermediate_size: Count = 4304
    in_channels: Count = 3
    patch_size: Count = 16
    spatial_merge_size: Count = 2
    temporal_patch_size: Count = 2
    out_hidden_size: Count = 3584
    num_position_embeddings: Count = 2304
    deepstack_visual_indexes: tuple[int, ...] = (8, 16, 24)


class Text(msgspec.Struct, frozen=True):
    """A decoder with experts: the thinker's or the talker's `text_config`."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    moe_intermediate_size: Count
    num_experts: CountOrNone = 128
    num_experts_per_tok: Count = 8
    intermediate_size: CountOrNone = 0
    shared_expert_intermediate_size: CountOrNone = 0
    head_dim: CountOrNone = 0
    attention_bias: bool = False
    tie_word_embeddings: bool = False
    decoder_sparse_step: Count = 1
    mlp_only_layers: tuple[int, ...] | None = None
    max_position_embeddings: Count = 32768

    @property
    def head(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    def has_experts(self, layer: int) -> bool:
        """Tell whether a layer's feed-forward part is a mixture of experts."""
        return (
            layer not in (self.mlp_only_layers or ())
            and self.num_experts > 0
            and (layer + 1) % self.decoder_sparse_step == 0
        )


class CodePredictor(msgspec.Struct, frozen=True):
    """Predicts the codec groups after the first (`talker_config.code_predictor_config`)."""

    vocab_size: Count = 2048
    hidden_size: Count = 1024
    intermediate_size: Count = 3072
    num_hidden_layers: Count = 5
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 8
    head_dim: CountOrNone = 128
    attention_bias: bool = False
    num_code_groups: Count = 32

    @property
    def head(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads


class Code2Wav(msgspec.Struct, frozen=True):
    """The vocoder (`code2wav_config`)."""

    codebook_size: Count = 2048
    hidden_size: Count = 1024
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 16
    attention_bias: bool = False
    intermediate_size: Count = 3072
    num_hidden_layers: CountOrNone = 8
    num_quantizers: Count = 16
    upsample_rates: tuple[Count, ...] = (8, 5, 4, 3)
    upsampling_ratios: tuple[Count, ...] = (2, 2)
    decoder_dim: Count = 1536

    @property
    def samples_per_frame(self) -> int:
        """Samples of sound, at 24 kHz, from one codec frame."""
        return math.prod(self.upsample_rates) * math.prod(self.upsampling_ratios)


class Thinker(msgspec.Struct, frozen=True):
    """Hears, sees and writes text."""

    text_config: Text
    audio_config: Audio = Audio()
    vision_config: Vision = Vision()
    tie_word_embeddings: bool = False

    @property
    def tied(self) -> bool:
        """Tell whether the output head is the embedding itself."""
        return self.tie_word_embeddings or self.text_config.tie_word_embeddings


class Talker(msgspec.Struct, frozen=True):
    """Turns the thinker's text and hidden states into codec frames."""

    text_config: Text
    code_predictor_config: CodePredictor = CodePredictor()
    thinker_hidden_size: Count = 2048


class Quantization(msgspec.Struct, frozen=True):
    """What config.json says of a quantised checkpoint (`quantization_config`)."""

    quant_method: str = ""
    bits: CountOrNone = 0
    group_size: int = 0


class Model(msgspec.Struct, frozen=True):
    """A whole Qwen3-Omni. Without `talker_config` (or with `enable_audio_output` false) it is a thinker alone."""

    thinker_config: Thinker
    talker_config: Talker | None = None
    code2wav_config: Code2Wav | None = None
    enable_audio_output: bool = True
    quantization_config: Quantization | None = None

    @property
    def talker(self) -> Talker | None:
        """The talker, where the model speaks."""
        return self.talker_config if self.enable_audio_output else None

    @property
    def code2wav(self) -> Code2Wav | None:
        """The vocoder, where the model speaks."""
        return self.code2wav_config if self.enable_audio_output else None

    @property
    def context(self) -> int:
        """Tokens that every stage can take in one sequence."""
        texts = [self.thinker_config.text_config]
        if self.talker:
            texts.append(self.talker.text_config)
        return min(text.max_position_embeddings for text in texts)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts that have experts."""
        return ("thinker", "talker") if self.talker is not None else ("thinker",)

    def sliced(self, kept: Mapping[str, int]) -> Model:
        """Keep so many experts of each layer, by part; a part that is not named keeps all. Raises PlanError."""

        def part(text: Text, name: str) -> Text:
            experts = kept.get(name, text.num_experts)
            if name in kept and not text.num_experts_per_tok <= experts <= text.num_experts:
                raise PlanError(
                    f"{experts} experts: the {name} has {text.num_experts} a layer and chooses "
                    f"{text.num_experts_per_tok} of them for a token, so it can keep "
                    f"{text.num_experts_per_tok} to {text.num_experts}"
                )
            return msgspec.structs.replace(text, num_experts=experts)

        thinker, talker = self.thinker_config, self.talker_config
        return msgspec.structs.replace(
            self,
            thinker_config=msgspec.structs.replace(thinker, text_config=part(thinker.text_config, "thinker")),
            talker_config=talker
            and msgspec.structs.replace(talker, text_config=part(talker.text_config, "talker")),
        )

    def silent(self) -> Model:
        """The same model without talker, code predictor and vocoder."""
        return msgspec.structs.replace(self, enable_audio_output=False)


class Tensor(NamedTuple):
    """A tensor as a checkpoint in one type would hold it."""

    name: str
    shape: tuple[int, ...]

    @property
    def parameters(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)


def parse(content: bytes, where: str) -> Model:
    """Read a config.json. Raises PlanError."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PlanError(f"{where}: not JSON: {error}") from error
    kind = found.get("model_type") if isinstance(found, dict) else None
    if kind not in MODEL_TYPES:
        raise PlanError(f"{where}: model_type: expected {' or '.join(MODEL_TYPES)}, got {_shown(kind)}")
    if kind == "qwen3_omni_moe_thinker":
        found = {"thinker_config": found}
    try:
        model = msgspec.convert(_renamed(found), Model)
    except msgspec.ValidationError as error:
        raise PlanError(f"{where}: {error}") from error
    return model


def read(path: Path) -> Model:
    """Read the config.json at `path`, a file or a checkpoint's directory. Raises PlanError, OSError."""
    file = path / CONFIG if path.is_dir() else path
    try:
        return parse(user_file.read(file, CONFIG_BYTES), str(file))
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise PlanError(
                f"{file}: more than {CONFIG_BYTES // 2**20} MiB, so it is no config.json"
            ) from error
        raise


def tensors(model: Model) -> Iterator[Tensor]:
    """List every tensor of the model, one an expert, with the name that a checkpoint gives it."""
    yield from _thinker(model.thinker_config)
    if model.talker is not None:
        yield from _talker(model.talker)
    if model.code2wav is not None:
        yield from _code2wav(model.code2wav)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]


def _renamed(found: dict[str, Any]) -> dict[str, Any]:
    """Give the fields that older configurations name otherwise the names of today."""

    def text(of: Any) -> None:
        config = of.get("text_config") if isinstance(of, dict) else None
        if isinstance(config, dict) and "num_local_experts" in config:
            config.setdefault("num_experts", config["num_local_experts"])

    for part in ("thinker_config", "talker_config"):
        text(found.get(part))
    thinker = found.get("thinker_config")
    vision = thinker.get("vision_config") if isinstance(thinker, dict) else None
    if isinstance(vision, dict):
        for old, new in (("in_chans", "in_channels"), ("spatial_patch_size", "patch_size")):
            if old in vision:
                vision.setdefault(new, vision[old])
    return found


def _linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (outputs, inputs))
    if bias:
        yield Tensor(f"{name}.bias", (outputs,))


def _norm(name: str, width: int) -> Iterator[Tensor]:
    """A layer norm, with its shift."""
    yield Tensor(f"{name}.weight", (width,))
    yield Tensor(f"{name}.bias", (width,))


def _thinker(thinker: Thinker) -> Iterator[Tensor]:
    text = thinker.text_config
    yield Tensor("thinker.model.embed_tokens.weight", (text.vocab_size, text.hidden_size))
    yield from _decoder("thinker.model", text)
    if not thinker.tied:
        yield Tensor("thinker.lm_head.weight", (text.vocab_size, text.hidden_size))
    yield from _audio("thinker.audio_tower", thinker.audio_config)
    yield from _vision("thinker.visual", thinker.vision_config)


def _decoder(name: str, text: Text) -> Iterator[Tensor]:
    for layer in range(text.num_hidden_layers):
        at = f"{name}.layers.{layer}"
        yield from _attention(at, text)
        if text.has_experts(layer):
            yield Tensor(f"{at}.mlp.gate.weight", (text.num_experts, text.hidden_size))
            for expert in range(text.num_experts):
                yield from _swiglu(f"{at}.mlp.experts.{expert}", text.hidden_size, text.moe_intermediate_size)
        else:
            yield from _swiglu(f"{at}.mlp", text.hidden_size, text.intermediate_size)
    yield Tensor(f"{name}.norm.weight", (text.hidden_size,))


def _attention(layer: str, part: Text | CodePredictor) -> Iterator[Tensor]:
    at, width = f"{layer}.self_attn", part.hidden_size
    queries, keys = part.num_attention_heads * part.head, part.num_key_value_heads * part.head
    yield from _linear(f"{at}.q_proj", width, queries, part.attention_bias)
    yield from _linear(f"{at}.k_proj", width, keys, part.attention_bias)
    yield from _linear(f"{at}.v_proj", width, keys, part.attention_bias)
    yield from _linear(f"{at}.o_proj", queries, width, part.attention_bias)
    yield Tensor(f"{at}.q_norm.weight", (part.head,))
    yield Tensor(f"{at}.k_norm.weight", (part.head,))
    yield Tensor(f"{layer}.input_layernorm.weight", (width,))
    yield Tensor(f"{layer}.post_attention_layernorm.weight", (width,))


def _swiglu(name: str, width: int, inner: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.gate_proj.weight", (inner, width))
    yield Tensor(f"{name}.up_proj.weight", (inner, width))
    yield Tensor(f"{name}.down_proj.weight", (width, inner))


def _audio(name: str, audio: Audio) -> Iterator[Tensor]:
    width, channels = audio.d_model, audio.downsample_hidden_size
    for layer in range(audio.encoder_layers):
        at = f"{name}.layers.{layer}"
        for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from _linear(f"{at}.self_attn.{projection}", width, width)
        yield from _norm(f"{at}.self_attn_layer_norm", width)
        yield from _linear(f"{at}.fc1", width, audio.encoder_ffn_dim)
        yield from _linear(f"{at}.fc2", audio.encoder_ffn_dim, width)
        yield from _norm(f"{at}.final_layer_norm", width)
    yield from _norm(f"{name}.ln_post", width)
    for number, inputs in ((1, 1), (2, channels), (3, channels)):
        yield Tensor(f"{name}.conv2d{number}.weight", (channels, inputs, 3, 3))
        yield Tensor(f"{name}.conv2d{number}.bias", (channels,))
    bins = audio.num_mel_bins
    for _ in range(3):  # each convolution has stride 2
        bins = (bins + 1) // 2
    yield from _linear(f"{name}.conv_out", channels * bins, width, bias=False)
    yield from _linear(f"{name}.proj1", width, width)
    yield from _linear(f"{name}.proj2", width, audio.output_dim)


def _vision(name: str, vision: Vision) -> Iterator[Tensor]:
    width = vision.hidden_size
    merged = width * vision.spatial_merge_size**2
    for index in range(len(vision.deepstack_visual_indexes)):
        yield from _merger(f"{name}.merger_list.{index}", merged, merged, vision.out_hidden_size)
    patch = (vision.in_channels, vision.temporal_patch_size, vision.patch_size, vision.patch_size)
    yield Tensor(f"{name}.patch_embed.proj.weight", (width, *patch))
    yield Tensor(f"{name}.patch_embed.proj.bias", (width,))
    yield Tensor(f"{name}.pos_embed.weight", (vision.num_position_embeddings, width))
    for block in range(vision.depth):
        at = f"{name}.blocks.{block}"
        yield from _norm(f"{at}.norm1", width)
        yield from _norm(f"{at}.norm2", width)
        yield from _linear(f"{at}.attn.qkv", width, 3 * width)
        yield from _linear(f"{at}.attn.proj", width, width)
        yield from _linear(f"{at}.mlp.linear_fc1", width, vision.intermediate_size)
        yield from _linear(f"{at}.mlp.linear_fc2", vision.intermediate_size, width)
    yield from _merger(f"{name}.merger", width, merged, vision.out_hidden_size)


def _merger(name: str, normed: int, merged: int, outputs: int) -> Iterator[Tensor]:
    yield from _norm(f"{name}.ln_q", normed)
    yield from _linear(f"{name}.mlp.0", merged, merged)
    yield from _linear(f"{name}.mlp.2", merged, outputs)


def _talker(talker: Talker) -> Iterator[Tensor]:
    text = talker.text_config
    yield from _decoder(
        "talker.model", msgspec.structs.replace(text, mlp_only_layers=None, decoder_sparse_step=1)
    )
    for layer in range(text.num_hidden_layers):
        at = f"talker.model.layers.{layer}.mlp"
        yield from _swiglu(f"{at}.shared_expert", text.hidden_size, text.shared_expert_intermediate_size)
        yield Tensor(f"{at}.shared_expert_gate.weight", (1, text.hidden_size))
    yield Tensor("talker.model.codec_embedding.weight", (text.vocab_size, text.hidden_size))
    for projection in ("text_projection", "hidden_projection"):
        at = f"talker.{projection}"
        yield from _linear(f"{at}.linear_fc1", talker.thinker_hidden_size, text.intermediate_size)
        yield from _linear(f"{at}.linear_fc2", text.intermediate_size, text.hidden_size)
    yield Tensor("talker.codec_head.weight", (text.vocab_size, text.hidden_size))
    yield from _code_predictor("talker.code_predictor", talker.code_predictor_config)


def _code_predictor(name: str, part: CodePredictor) -> Iterator[Tensor]:
    for layer in range(part.num_hidden_layers):
        at = f"{name}.model.layers.{layer}"
        yield from _attention(at, part)
        yield from _swiglu(f"{at}.mlp", part.hidden_size, part.intermediate_size)
    yield Tensor(f"{name}.model.norm.weight", (part.hidden_size,))
    for group in range(part.num_code_groups - 1):
        yield Tensor(f"{name}.model.codec_embedding.{group}.weight", (part.vocab_size, part.hidden_size))
        yield Tensor(f"{name}.lm_head.{group}.weight", (part.vocab_size, part.hidden_size))


def _code2wav(part: Code2Wav) -> Iterator[Tensor]:
    name, width = "code2wav", part.hidden_size
    head = width // part.num_attention_heads
    queries, keys = part.num_attention_heads * head, part.num_key_value_heads * head
    for layer in range(part.num_hidden_layers):
        at = f"{name}.pre_transformer.layers.{layer}"
        yield from _linear(f"{at}.self_attn.q_proj", width, queries, part.attention_bias)
        yield from _linear(f"{at}.self_attn.k_proj", width, keys, part.attention_bias)
        yield from _linear(f"{at}.self_attn.v_proj", width, keys, part.attention_bias)
        yield from _linear(f"{at}.self_attn.o_proj", queries, width, part.attention_bias)
        yield from _swiglu(f"{at}.mlp", width, part.intermediate_size)
        for scale in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            yield Tensor(f"{at}.{scale}", (width,))
        for scale in ("self_attn_layer_scale.scale", "mlp_layer_scale.scale"):
            yield Tensor(f"{at}.{scale}", (width,))
    yield Tensor(f"{name}.pre_transformer.norm.weight", (width,))
    yield Tensor(f"{name}.code_embedding.weight", (part.codebook_size * part.num_quantizers, width))
    for index, factor in enumerate(part.upsampling_ratios):
        at = f"{name}.upsample.{index}"
        yield from _transposed(f"{at}.0", width, width, factor)
        yield Tensor(f"{at}.1.dwconv.conv.weight", (width, 1, 7))
        yield Tensor(f"{at}.1.dwconv.conv.bias", (width,))
        yield from _norm(f"{at}.1.norm", width)
        yield from _linear(f"{at}.1.pwconv1", width, 4 * width)
        yield from _linear(f"{at}.1.pwconv2", 4 * width, width)
        yield Tensor(f"{at}.1.gamma", (width,))
    yield from _vocoder(f"{name}.decoder", part)


def _vocoder(name: str, part: Code2Wav) -> Iterator[Tensor]:
    yield from _convolution(f"{name}.0", part.hidden_size, part.decoder_dim, 7)
    for index, rate in enumerate(part.upsample_rates):
        at = f"{name}.{index + 1}.block"
        inputs, outputs = part.decoder_dim // 2**index, part.decoder_dim // 2 ** (index + 1)
        yield from _snake(f"{at}.0", inputs)
        yield from _transposed(f"{at}.1", inputs, outputs, 2 * rate)
        for unit in range(2, 5):
            yield from _snake(f"{at}.{unit}.act1", outputs)
            yield from _convolution(f"{at}.{unit}.conv1", outputs, outputs, 7)
            yield from _snake(f"{at}.{unit}.act2", outputs)
            yield from _convolution(f"{at}.{unit}.conv2", outputs, outputs, 1)
    last = part.decoder_dim // 2 ** len(part.upsample_rates)
    yield from _snake(f"{name}.{len(part.upsample_rates) + 1}", last)
    yield from _convolution(f"{name}.{len(part.upsample_rates) + 2}", last, 1, 7)


def _convolution(name: str, inputs: int, outputs: int, kernel: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.conv.weight", (outputs, inputs, kernel))
    yield Tensor(f"{name}.conv.bias", (outputs,))


def _transposed(name: str, inputs: int, outputs: int, kernel: int) -> Iterator[Tensor]:
    """A transposed convolution, whose weight begins with its inputs."""
    yield Tensor(f"{name}.conv.weight", (inputs, outputs, kernel))
    yield Tensor(f"{name}.conv.bias", (outputs,))


def _snake(name: str, width: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.alpha", (width,))
    yield Tensor(f"{name}.beta", (width,))
