"""Make a Qwen3-Omni of 27 million random weights, with all three stages and a tokenizer made up for it. No downloads.

    make_model.py DIRECTORY

What it says is noise, of a length that the server's limits set. Token ids that the server or the model looks for are
those of the real one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3OmniMoeConfig,
    Qwen3OmniMoeForConditionalGeneration,
    Qwen3OmniMoeProcessor,
    WhisperFeatureExtractor,
)
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

HIDDEN = 64
CONTEXT = 4096
WORDS = 151_643
"""Entries of the vocabulary before the special ones."""
ROLES = {"system": 8948, "user": 872, "assistant": 77091}
SPECIAL = """
<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|>
<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call> </tool_call>
<|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response>
<think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>
"""
"""In the order of their ids, from WORDS on."""
NAMED = {
    "image_token": "<|image_pad|>",
    "audio_token": "<|audio_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}{{ part.text }}
{%- elif 'audio' in part.type -%}<|audio_start|><|audio_pad|><|audio_end|>
{%- elif 'image' in part.type -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif 'video' in part.type -%}<|vision_start|><|video_pad|><|vision_end|>
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""


def vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Bytes, the roles at their ids with the merges that lead to them, and words without meaning in between."""
    ids = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: dict[tuple[str, str], None] = {}
    for role, role_id in ROLES.items():
        for end in range(1, len(role)):
            merges[role[:end], role[end]] = None
            if end + 1 < len(role):
                ids.setdefault(role[: end + 1], 300 + len(ids))
        ids[role] = role_id
    taken = set(ids.values())
    # The letter stands for a space in byte-level vocabularies.
    ids |= {f"\u0120w{number}": number for number in range(WORDS) if number not in taken}
    assert sorted(ids.values()) == list(range(WORDS))
    return ids, list(merges)


def tokenizer() -> PreTrainedTokenizerFast:
    ids, merges = vocabulary()
    inner = Tokenizer(models.BPE(vocab=ids, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL.split()])
    outer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
        extra_special_tokens=NAMED,
    )
    outer.chat_template = CHAT_TEMPLATE
    assert outer.encode("<|im_start|>user\n")[:2] == [151_644, ROLES["user"]]
    assert outer.convert_tokens_to_ids("<|audio_pad|>") == 151_675
    return outer


def language_model(layers: int, theta: float, **fields: Any) -> dict[str, Any]:
    """A mixture of four experts, two of them at a time."""
    rope = {
        "rope_type": "default",
        "rope_theta": theta,
        "mrope_section": [16, 8, 8],
        "mrope_interleaved": True,
        "interleaved": True,
    }
    return {
        "num_hidden_layers": layers,
        "rope_parameters": rope,
        "use_qk_norm": True,
        "use_sliding_window": False,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "max_position_embeddings": CONTEXT,
        **fields,
    }


def thinker() -> dict[str, Any]:
    audio = {
        "d_model": 64,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "output_dim": HIDDEN,
        "downsample_hidden_size": 16,
    }
    vision = {
        "image_size": 768,
        "apply_vit_abs_pos_embed": True,
        "in_chans": 3,
        "spatial_patch_size": 16,
        "tokens_per_second": 2,
        "depth": 2,
        "hidden_size": 64,
        "num_heads": 2,
        "intermediate_size": 64,
        "out_hidden_size": HIDDEN,
        "deepstack_visual_indexes": [0],
    }
    return {
        "audio_config": audio,
        "vision_config": vision,
        "text_config": language_model(3, 1e6, vocab_size=152_064, shared_expert_intermediate_size=0),
        "audio_token_id": 151_675,
        "image_token_id": 151_655,
        "video_token_id": 151_656,
        "audio_start_token_id": 151_669,
        "audio_end_token_id": 151_670,
        "vision_start_token_id": 151_652,
        "vision_end_token_id": 151_653,
        "user_token_id": ROLES["user"],
    }


def talker() -> dict[str, Any]:
    code_predictor = {
        "vocab_size": 2048,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "num_code_groups": 16,
        "max_position_embeddings": CONTEXT,
    }
    return {
        "text_config": language_model(
            2, 1e6, vocab_size=3072, num_local_experts=4, shared_expert_intermediate_size=32
        ),
        "code_predictor_config": code_predictor,
        "num_code_groups": 16,
        "spatial_merge_size": 2,
        "thinker_hidden_size": HIDDEN,
        "accept_hidden_layer": 2,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "audio_token_id": 151_675,
        "audio_start_token_id": 151_669,
        "image_token_id": 151_655,
        "video_token_id": 151_656,
        "vision_start_token_id": 151_652,
        "speaker_id": {"chelsie": 2301, "ethan": 2302, "aiden": 2303},
    }


def config() -> Qwen3OmniMoeConfig:
    code2wav = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "intermediate_size": 64,
        "num_quantizers": 16,
        "decoder_dim": 64,
    }
    made = Qwen3OmniMoeConfig(
        thinker_config=thinker(),
        talker_config=talker(),
        code2wav_config=code2wav,
        tts_pad_token_id=151_671,
        tts_bos_token_id=151_672,
        tts_eos_token_id=151_673,
        dtype="bfloat16",
    )
    made.architectures = ["Qwen3OmniMoeForConditionalGeneration"]
    return made


def make(directory: Path) -> int:
    """Write the model; return how many weights it has."""
    words = tokenizer()
    processor = Qwen3OmniMoeProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16),
        video_processor=Qwen2VLVideoProcessor(patch_size=16),
        feature_extractor=WhisperFeatureExtractor(feature_size=128, sampling_rate=16_000, n_fft=400),
        tokenizer=words,
        chat_template=CHAT_TEMPLATE,
    )
    processor.save_pretrained(directory)
    words.save_pretrained(directory)
    torch.manual_seed(0)
    model = Qwen3OmniMoeForConditionalGeneration(config()).to(torch.bfloat16)
    for name, weights in model.named_parameters():
        if ".experts." in name:
            # The talker's would be whatever was in memory before.
            torch.nn.init.normal_(weights, std=0.02)
    model.save_pretrained(directory)
    generation = {"bos_token_id": 151_643, "eos_token_id": [151_645], "pad_token_id": 151_643}
    generation |= {"do_sample": True, "temperature": 1.0}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    return sum(weights.numel() for weights in model.parameters())


if __name__ == "__main__":
    sys.stdout.write(f"{make(Path(sys.argv[1]))} weights\n")
