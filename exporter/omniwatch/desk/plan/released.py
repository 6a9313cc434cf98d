"""The architecture of Qwen3-Omni-30B-A3B-Instruct, from the config.json that Qwen released with it.

Its thinker has 31,719,205,488 parameters and its talker 3,324,596,480: what the loaded model prints of itself in public
(ai-bot-pro/achatbot, pull request 196).
"""

from __future__ import annotations

from omniwatch.desk.plan.model import Audio, Code2Wav, CodePredictor, Model, Talker, Text, Thinker, Vision

RELEASED_NAME = "Qwen3-Omni-30B-A3B-Instruct"
RELEASED = Model(
    thinker_config=Thinker(
        text_config=Text(
            vocab_size=152064,
            hidden_size=2048,
            num_hidden_layers=48,
            num_attention_heads=32,
            num_key_value_heads=4,
            head_dim=128,
            intermediate_size=768,
            moe_intermediate_size=768,
            num_experts=128,
            num_experts_per_tok=8,
            max_position_embeddings=65536,
        ),
        audio_config=Audio(output_dim=2048),
        vision_config=Vision(out_hidden_size=2048),
    ),
    talker_config=Talker(
        text_config=Text(
            vocab_size=3072,
            hidden_size=1024,
            num_hidden_layers=20,
            num_attention_heads=16,
            num_key_value_heads=2,
            head_dim=128,
            intermediate_size=2048,
            moe_intermediate_size=384,
            shared_expert_intermediate_size=768,
            num_experts=128,
            num_experts_per_tok=6,
            max_position_embeddings=65536,
        ),
        code_predictor_config=CodePredictor(num_code_groups=16),
    ),
    code2wav_config=Code2Wav(),
)
