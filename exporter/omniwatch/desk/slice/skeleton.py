"""A Qwen3-Omni of transformers without its decoder layers: what goes into them, and one layer at a time.

transformers' own code merges sound and pictures into the tokens and numbers their positions. It is stopped where its layers would begin.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a checkpoint is on the disk: nothing is asked of a hub

import torch
import transformers
from transformers.initialization import no_init_weights
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as modeling

from omniwatch.desk.slice import SliceError
from omniwatch.desk.slice.routing import Routing, forward
from omniwatch.desk.slice.source import Source, config_of
from omniwatch.desk.slice.tensors import Tensors

TESTED = ((5, 13), (5, 15))
"""The first and the last version of transformers whose names are known here."""
LAYERS = {
    "thinker": modeling.Qwen3OmniMoeThinkerTextDecoderLayer,
    "talker": modeling.Qwen3OmniMoeTalkerDecoderLayer,
}


class Entry(NamedTuple):
    """What goes into a part's first layer: embeddings (tokens, width), positions (3, 1, tokens), and pictures' further features.

    `deep` is added to the tokens that `seen` names, behind the first layers, one after another.
    """

    embeds: Any
    positions: Any
    deep: list[Any]
    seen: Any


class _Reached(Exception):  # noqa: N818  no error: it carries what was handed over
    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.given = given


def check_version() -> None:
    """Have transformers say errors alone. Raises SliceError for one that is not known here."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    found = tuple(int(number) for number in transformers.__version__.split(".")[:2])
    if not TESTED[0] <= found <= TESTED[1]:
        first, last = (".".join(map(str, version)) for version in TESTED)
        raise SliceError(f"transformers {transformers.__version__}: from {first} to {last} is known here")


def mend(model: Any) -> None:
    """Let the talker number the positions of pictures with sound: transformers 5.14 looks there for settings of the thinker's ear."""
    if model.has_talker and not hasattr(model.talker.config, "audio_config"):
        model.talker.config.audio_config = model.thinker.config.audio_config


class Skeleton:
    """The model, of whose weights each method loads what it needs."""

    def __init__(self, source: Source, device: str) -> None:
        self.tensors = Tensors(source, device)
        self._device = device
        config = config_of(source)
        if config.get("model_type") == "qwen3_omni_moe_thinker":
            config = {"thinker_config": config, "enable_audio_output": False}
        self.config = transformers.Qwen3OmniMoeConfig.from_dict(config)
        self.texts = {
            part: getattr(self.config, f"{part}_config").text_config
            for part in LAYERS
            if part == "thinker" or self.config.enable_audio_output
        }
        self.layers = {part: text.num_hidden_layers for part, text in self.texts.items()}
        for text in self.texts.values():
            text.num_hidden_layers = 0
        # Causal without a mask: each question goes through by itself.
        self.config._attn_implementation = "sdpa"  # noqa: SLF001  transformers has no public setter
        with no_init_weights():
            self.model = modeling.Qwen3OmniMoeForConditionalGeneration(self.config).eval()
        mend(self.model)
        self.model.to(device)
        self.model.thinker.model.embed_tokens.register_forward_hook(lambda *given: given[-1].float())

    def layer(self, part: str, number: int) -> tuple[Any, Routing | None]:
        """Return a layer with its weights, and what is told of its experts; None: it has none."""
        text = self.texts[part]
        with torch.device("meta"):
            module = LAYERS[part](text, number).eval()
        prefix = f"{part}.model.layers.{number}"
        routing = None
        if hasattr(module.mlp, "experts"):
            routing = Routing(text.num_experts)
            experts = self.tensors.experts(
                f"{prefix}.mlp.experts", text.num_experts, text.moe_intermediate_size
            )
            activation = module.mlp.experts.act_fn
            module.mlp.experts = torch.nn.Module()
            module.mlp.experts.forward = forward(experts, activation, routing)
        self.tensors.fill(module, prefix)
        return module, routing

    def rotary(self, part: str, hidden: Any, positions: Any) -> Any:
        """Return the rotation of each position, as a part's layers take it."""
        return getattr(self.model, part).model.rotary_emb(hidden, positions)

    def load_hearing(self, pictures: bool) -> None:
        """Load what turns words, sound and, if there are any, pictures into embeddings."""
        self._load_words()
        self.tensors.fill(self.model.thinker.audio_tower, "thinker.audio_tower")
        if pictures:
            self.tensors.fill(self.model.thinker.visual, "thinker.visual")

    def load_speaking(self) -> None:
        """Load what turns the thinker's states and codec tokens into the talker's input."""
        talker = self.model.talker
        self._load_words()
        for name in ("text_projection", "hidden_projection", "model.codec_embedding"):
            self.tensors.fill(talker.get_submodule(name), f"talker.{name}")
        embeddings = talker.code_predictor.model.codec_embedding
        self.tensors.fill(embeddings, "talker.code_predictor.model.codec_embedding")

    def head(self, part: str) -> Any:
        """Return what turns a part's last states (tokens, width) into logits of the next token."""
        norm = getattr(self.model, part).model.norm
        self.tensors.fill(norm, f"{part}.model.norm")
        name = "thinker.lm_head.weight" if part == "thinker" else "talker.codec_head.weight"
        if name not in self.tensors:
            tied = "embed_tokens" if part == "thinker" else "codec_embedding"
            name = f"{part}.model.{tied}.weight"
        weight = self.tensors.read(name)
        return lambda states: torch.nn.functional.linear(norm(states.to(self._device)), weight)

    def normed(self, part: str, states: Any) -> Any:
        """Return a part's last states behind its last norm."""
        norm = getattr(self.model, part).model.norm
        self.tensors.fill(norm, f"{part}.model.norm")
        return norm(states.to(self._device)).cpu()

    def heard(self, inputs: dict[str, Any]) -> Entry:
        """Return the thinker's input for what a processor made of a question."""
        given = self._reached(self.model.thinker.model, lambda: self.model.thinker(**self._moved(inputs)))
        deep = given.get("deepstack_visual_embeds")
        seen = given.get("visual_pos_masks")
        return Entry(
            given["inputs_embeds"][0],
            given["position_ids"],
            [] if deep is None else list(deep),
            None if seen is None else seen[0],
        )

    def spoken(
        self,
        inputs: dict[str, Any],
        sequence: Any,
        embeds: Any,
        hidden: Any,
        codes: Any,
        speaker: str,
    ) -> tuple[Entry, Any]:
        """Return the talker's input for an answer, and the token that each place of what precedes its frames stands for.

        `inputs`: the question's. `sequence`: all tokens of question and answer. `embeds`, `hidden`: what went into the thinker's first
        layer, and into the one that the talker listens to. `codes`: the answer's codec tokens (frames, groups).
        """
        model, talker = self.model, self.model.talker
        states: list[Any] = [None] * (self.config.talker_config.accept_hidden_layer + 1)
        states[0], states[-1] = embeds[None], hidden[None]
        result = SimpleNamespace(sequences=sequence[None], hidden_states=(tuple(states),))

        def speak(**given: Any) -> None:
            raise _Reached(given)

        model.thinker.generate = lambda **given: result
        talker.generate = speak
        try:
            model.generate(**self._moved(inputs), speaker=speaker, return_audio=True)
        except _Reached as reached:
            given = reached.given
        finally:
            del model.thinker.generate, talker.generate
        before, trailing, pad = (
            given[name] for name in ("inputs_embeds", "trailing_text_hidden", "tts_pad_embed")
        )
        tokens = given["talker_input_ids"]
        positions, deltas = talker.get_rope_index(
            tokens,
            given.get("image_grid_thw"),
            None,
            torch.ones_like(tokens),
            None,
            given.get("audio_feature_lengths"),
            None,
        )
        frames = len(codes)
        later = torch.arange(before.shape[1], before.shape[1] + frames, device=tokens.device) + deltas
        positions = torch.cat((positions, later.expand(3, 1, -1).to(positions.dtype)), dim=-1)
        tables = [talker.model.codec_embedding, *talker.code_predictor.model.codec_embedding]
        told = sum(table(codes[:, group].to(self._device)) for group, table in enumerate(tables))
        words = torch.cat((trailing[0, :frames], pad[0].expand(max(0, frames - trailing.shape[1]), -1)))
        return Entry(torch.cat((before[0], told + words)), positions, [], None), tokens[0]

    def _load_words(self) -> None:
        # As it is stored: only the rows of tokens that occur are looked at.
        weight = self.tensors.stored("thinker.model.embed_tokens.weight").to(self._device)
        self.model.thinker.model.embed_tokens.weight = torch.nn.Parameter(weight, requires_grad=False)

    def _moved(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: held.to(self._device) for name, held in inputs.items()}

    @staticmethod
    def _reached(module: Any, run: Any) -> dict[str, Any]:
        def stop(_: Any, __: Any, given: dict[str, Any]) -> None:
            raise _Reached(given)

        hook = module.register_forward_pre_hook(stop, with_kwargs=True)
        try:
            run()
        except _Reached as reached:
            return reached.given
        finally:
            hook.remove()
        raise AssertionError("the layers were not reached")
