"""Every figure of the two published documents, with what was computed or measured of it: the rows of docs/claims.md.

A figure that can be computed is computed here, each time; the others say what measured them, or what would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from omniwatch.desk.plan.bound import bound
from omniwatch.desk.plan.components import parse_types
from omniwatch.desk.plan.device import DEVICES
from omniwatch.desk.plan.ladder import slices
from omniwatch.desk.plan.memory import KV_BYTES, Result, Wanted, compute, kv_bytes_per_token
from omniwatch.desk.plan.released import RELEASED, RELEASED_NAME
from omniwatch.frames import HEADER
from omniwatch.settings import Settings

HELD, NOT, PARTLY, CANNOT = "held", "did not hold", "held in part", "cannot be checked here"
RATE_HZ = 24_000
TEXT_ONLY_TOKENS = 8192
"""Tokens of one stream on the card of 24 GB, which the document does not say."""


class Row(NamedTuple):
    """One figure: what is claimed, what came of it, how to see it again, and the verdict."""

    claim: str
    found: str
    how: str
    verdict: str


def _plan(*types: str, **more: object) -> Result:
    return compute(_wanted(*types, **more))


def _wanted(*types: str, **more: object) -> Wanted:
    return Wanted(
        name=RELEASED_NAME,
        model=RELEASED,
        device=DEVICES["orin-64"],
        types=parse_types(types),
        **more,  # type: ignore[arg-type]  # the caller names the fields
    )


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB"


def _stage(result: Result, name: str) -> int:
    return next(stage.weights_bytes for stage in result.stages if stage.name == name)


def _parts(result: Result, *names: str) -> int:
    return sum(part.bytes for part in result.components if part.name in names)


def edge() -> Iterator[Row]:
    """The document on resumption at the edge: "30B to 3B in three steps"."""
    whole = _plan()
    rows = {row.experts: row for row in slices(_wanted())}
    text = RELEASED.thinker_config.text_config
    half, quarter, least = rows[64].bytes, rows[32].bytes, rows[8]
    code2wav = RELEASED.code2wav
    assert code2wav is not None
    samples = code2wav.samples_per_frame
    frames = Settings().frames
    alerts = Settings().alerts
    window_s = frames.cache_win * frames.frame_ms / 1000
    codes = frames.cache_win * code2wav.num_quantizers * 2
    sound = round(window_s * RATE_HZ * 2)
    plan = "`omniwatch plan`"
    ladder = "`omniwatch plan --ladder`"
    yield Row(
        "12.5 codec frames a second, one every 80 ms",
        f"{samples} samples a frame at {RATE_HZ // 1000} kHz: {RATE_HZ / samples:g} a second, {1000 * samples / RATE_HZ:g} ms",
        "config.json, `code2wav_config`",
        HELD,
    )
    yield Row(
        "10 % packet loss and 3 s timeouts are common on 4G and 5G",
        "no trace of such a network is published with it",
        "needs recordings of the network",
        CANNOT,
    )
    yield Row(
        "the whole model needs 79 GB",
        f"weights {_gb(whole.weights_bytes)} in bf16; 78.85 GB is Qwen's own figure for 15 s of video in transformers",
        plan,
        PARTLY,
    )
    yield Row(
        "it bursts an Orin of 64 GB",
        f"{_gb(whole.needed_bytes)} with one stream, {_gb(whole.available_bytes)} to be had",
        plan,
        HELD if not whole.fits else NOT,
    )
    yield Row(
        "thinker and talker have 16 experts each",
        f"{text.num_experts} a layer in each; a token chooses {text.num_experts_per_tok} in the thinker",
        "config.json, `num_experts`",
        NOT,
    )
    yield Row(
        "4 experts are kept (`--moe-expert-slice 4`)",
        f"a token chooses {text.num_experts_per_tok}: fewer cannot be kept; vLLM 0.30 has no such flag",
        "`omniwatch plan --experts 4`, `omniwatch slice apply`; `omniwatch check --vllm PROGRAM`",
        NOT,
    )
    yield Row("GELU layers hardly suffer", "the activation is SiLU", "config.json, `hidden_act`", NOT)
    yield Row(
        "step 1, a quarter of the experts: 79 to 38 GB",
        f"a quarter of the experts is {_gb(quarter['bf16'])}; half of them {_gb(half['bf16'])}",
        ladder,
        NOT,
    )
    yield Row(
        "step 1 costs 0.8 % of text and 1.1 % of audio quality",
        "a public run (NVIDIA Model-Optimizer, pull request 467) went from 0.787 to 0.740 in MMLU with 96 of 128 experts, text only",
        "needs a GPU, the pruned checkpoint and its test data; `omniwatch slice compare` measures agreement alone",
        CANNOT,
    )
    yield Row(
        "step 2, INT8 in groups of 128: 38 to 21 GB",
        f"half the experts in INT8: {_gb(half['int8'])}; all of them: {_gb(rows[128].bytes['int8'])}",
        ladder,
        "held, for half the experts",
    )
    yield Row(
        "step 2 costs 1.2 % and 1.5 %",
        "no such checkpoint is published",
        "needs a GPU and the test data",
        CANNOT,
    )
    need = 8e9 / 0.75
    per_token = kv_bytes_per_token(text, "bf16")
    two = _plan(streams=2).kv_bytes
    yield Row(
        "step 3, KV cache at a quarter (`cache-ratio=0.25`): 21 to 13 GB",
        f"to save 8 GB the cache must have been {_gb(need)} ({need / per_token:,.0f} tokens); two streams of 32768 have "
        f"{_gb(two)}. Half the experts in INT4 is {_gb(half['int4 both'])}. vLLM has no such option; "
        f"fp8 makes the cache {KV_BYTES['fp8'] / KV_BYTES['bf16']:.0%}",
        "`omniwatch plan --streams 2`; `--ladder`",
        NOT,
    )
    yield Row("step 3 costs 0.3 % and 0.4 %", "there is no such option to measure", "-", CANNOT)
    without = sum(part.parameters for part in whole.components if not part.name.endswith("_experts"))
    yield Row(
        "the sliced model has 3 B parameters",
        f"the least, {least.experts} experts, has {least.parameters / 1e9:.1f} B; without any expert {without / 1e9:.2f} B remain",
        ladder,
        NOT,
    )
    yield Row("COCO-Audio falls by 1.1 %", "no data set of this name was found", "needs the data set", CANNOT)
    yield Row(
        "first frame 2.1 s before, 1.2 s after",
        "not measured",
        "needs an Orin: `omniwatch probe`",
        CANNOT,
    )
    small = _plan("int4", streams=2)
    yield Row(
        "13 GB, and two streams on an Orin",
        f"all experts in INT4 with two streams of 32768 tokens: {_gb(small.needed_bytes)}, which fits; "
        f"{_gb(half['int4 both'])} is the weights of half the experts in INT4",
        "`omniwatch plan --quantization int4 --streams 2`",
        PARTLY,
    )
    yield Row("an 8-byte header", f"{HEADER.size} bytes", "`omniwatch.frames.HEADER`", HELD)
    yield Row(
        "the client keeps 150 frames, 12 s",
        f"{frames.client_win} x {frames.frame_ms:g} ms = {frames.client_win * frames.frame_ms / 1000:g} s",
        "`frames.client_win`, the default here",
        HELD,
    )
    yield Row(
        "the server keeps 75 frames, 6 s",
        f"{frames.cache_win} x {frames.frame_ms:g} ms = {window_s:g} s",
        "`frames.cache_win`, the default here",
        HELD,
    )
    yield Row(
        "more than 75 frames is more than memory can bear",
        f"75 frames are {codes / 1000:g} kB of codes, or {sound / 1000:g} kB of sound",
        "16 codes of 2 bytes a frame; 24 kHz, 16 bit",
        NOT,
    )
    yield Row(
        "`RTX_THR=3`: 3 lost frames are asked for again",
        f"{frames.rtx_thr}, the default here",
        "`frames.rtx_thr`",
        HELD,
    )
    yield Row(
        "`DRIFT_MS=40`: realigned beyond 40 ms",
        f"{frames.drift_ms:g}, the default here",
        "`frames.drift_ms`",
        HELD,
    )
    bench = "`omniwatch bench resume --scenario 4g-10pct --minutes 15` with `--congestion`, `--codec`: a made-up network, 4 seeds"
    yield Row(
        "on 4G (100 ms RTT, 10 % loss) 98.2 % of resumptions succeed",
        "with this project's client and server 100.00 % of 732 (PCM on CUBIC), 588 (Opus on CUBIC), 588 (PCM on BBR), 612 (Opus on "
        "BBR). On a real path, cut each 5 s, all 320 turns were heard whole, by 594 returns: 174, 137, 144, 139; the code that the document "
        "measured is not named",
        f"{bench}; `make path-all`",
        "held, on a made-up network; on the real path whole turns were counted",
    )
    yield Row(
        "and they cost 63 ms more on average",
        "ms on average (P99): PCM on CUBIC 314 (1,130), Opus on CUBIC 8 (328), PCM on BBR 17 (559), Opus on BBR 6 (315). "
        "On a real path: 334 (1,040), 105 (790), 140 (750), 95 (630)",
        f"{bench}; `make path-all`",
        "held with Opus or BBR on a made-up network, not on the real path",
    )
    yield Row(
        "750 ms to the first speech holds at 10 % loss",
        "depends on the server's own time, which needs a GPU; with a handshake the made-up network adds, P50 / P90 in ms: PCM on CUBIC "
        "286 / 690, Opus on CUBIC 228 / 825, PCM on BBR 335 / 809, Opus on BBR 227 / 727. A kept connection on a real path: "
        "230 / 600, 130 / 460, 230 / 530, 180 / 460",
        "needs an Orin: `omniwatch probe` through `omniwatch link --scenario 4g-10pct`",
        CANNOT,
    )
    yield Row(
        "after 10 min the voice is 300 ms behind",
        f"a clock that is wrong by {300 / 600 / 1000 * 1e6:.0f} ppm does that",
        "`omniwatch simulate`; `omni_codec_drift_slope_ppm`",
        "held, as an example",
    )
    yield Row(
        "page when |drift| > 60 ms for 15 s",
        f"rendered: > {alerts.drift_page_ms:g} for {alerts.drift_for_s:g} s",
        "`omniwatch render streaming.rules.yaml`",
        HELD,
    )
    yield Row(
        "page when the round trip > 800 ms for 20 s",
        f"rendered: > {alerts.rtt_page_ms:g} for {alerts.rtt_for_s:g} s",
        "`omniwatch render streaming.rules.yaml`",
        HELD,
    )
    yield Row(
        "at 120 km/h with 3 handovers a minute both curves were red 0 times",
        "the made-up network has 3 handovers a minute; the road and its server were not here",
        "`omniwatch bench resume --scenario highway-120`; needs the drive",
        CANNOT,
    )
    yield Row(
        "image `vllm/qwen3-omni:3b-int8-moe4`",
        "not seen anywhere; `VLLM_MOE_EXPERT_SLICE` and `VLLM_QUANT` are no variables of vLLM 0.30",
        "`omniwatch check --vllm PROGRAM`",
        NOT,
    )
    yield Row(
        "`--max-model-len 32768`",
        f"the flag exists; one stream of 32768 tokens takes {_gb(whole.kv_bytes_per_stream)} of KV cache in bf16",
        plan,
        HELD,
    )
    yield Row(
        "`POST /v1/resume` answers 206",
        "no route of vLLM 0.30; `omniwatch.resume.Resume` adds it",
        "tests/resume",
        "held, with omniwatch.resume",
    )
    yield Row(
        "one file of 240 lines, C++ and Python", "the repository is not named", "needs its name", CANNOT
    )


def flash() -> Iterator[Row]:
    """The document on Qwen3-Omni-Flash: memory, first frame and the edge."""
    whole, eight = _plan(), _plan(streams=8)
    thinker = _stage(whole, "thinker")
    int4 = _plan("int4")
    text_kv = kv_bytes_per_token(RELEASED.thinker_config.text_config, "bf16") * 32768
    plan = "`omniwatch plan`"
    yield Row(
        "first packet 211 ms for speech, 507 ms for video",
        "Qwen's own, on its own servers",
        "needs that server",
        CANNOT,
    )
    yield Row(
        "one A100 of 80 GB, and a peak of 144.8 GB",
        "one card of 80 GB cannot hold 144.8; 144.81 GB is Qwen's own figure for 120 s of video in transformers, bf16",
        "README of QwenLM/Qwen3-Omni",
        NOT,
    )
    yield Row(
        "CUDA 12.4, vLLM 0.7.2",
        "vLLM 0.7.2 is of February 2025, half a year older than the model, and knows no Qwen3-Omni",
        "vLLM's releases",
        NOT,
    )
    share = 0.92 * 80e9
    yield Row(
        "`--max-num-seqs 8 --gpu-memory-utilization 0.92 --max-model-len 32768` on 80 GB",
        f"0.92 of 80 GB is {_gb(share)}; weights and 8 full streams are {_gb(eight.weights_bytes + eight.kv_bytes)}",
        "`omniwatch plan --streams 8 --device-memory-gb 80`",
        NOT if eight.weights_bytes + eight.kv_bytes > share else HELD,
    )
    yield Row(
        "30 s of speech are answered",
        f"{30 * 12.5:g} codec frames",
        "12.5 frames a second",
        "held, as an amount",
    )
    yield Row(
        "44.1 kHz mono in",
        "the audio encoder hears 16 kHz: the processor resamples",
        "preprocessor_config.json",
        PARTLY,
    )
    yield Row(
        "three models in a row: 68 GB, 1.9 s, 1020 tokens/s, P99 3.4 s",
        "the three models are not named",
        "needs the GPU and the models; a chain of one's own: `omniwatch bench`",
        CANNOT,
    )
    yield Row(
        "one model: 0.51 s, 1350 tokens/s, P99 2.1 s",
        "not measured",
        "needs the GPU: `omniwatch probe`, `omniwatch bench`",
        CANNOT,
    )
    yield Row(
        "memory doubles, first frame -73 %, throughput +32 %, P99 -38 %",
        f"from the table's own figures: x {144.8 / 68:.2f}, {0.51 / 1.9 - 1:.0%}, {1350 / 1020 - 1:+.0%}, {2.1 / 3.4 - 1:.0%}",
        "division",
        "held, as arithmetic",
    )
    yield Row(
        "video encoder and talker's cache take 76 GB, the thinker only 42",
        f"the thinker's weights alone are {_gb(thinker)} in bf16, the talker's and code2wav's "
        f"{_gb(whole.weights_bytes - thinker)}; 76 + 42 is not 144.8",
        plan,
        NOT,
    )
    four = _stage(int4, "thinker")
    yield Row(
        "thinker in INT4: 23 GB",
        f"experts and attention in INT4 with the encoders {_gb(four)}, with 32768 tokens of KV cache {_gb(four + text_kv)}",
        "`omniwatch plan --quantization thinker=int4`",
        "held, with one stream's KV cache",
    )
    vision = _parts(whole, "vision_encoder")
    talker = _stage(whole, "talker")
    yield Row(
        "talker and vision encoder in INT4: 19 GB",
        f"in bf16, unquantised, they are {_gb(talker + vision)}; talker's experts in INT4: {_gb(_stage(int4, 'talker') + vision)}",
        plan,
        NOT,
    )
    yield Row(
        "loaded in turn, the peak is 42 GB",
        f"23 + 19 is both at the same time; all stages in INT4 at the same time need {_gb(int4.needed_bytes)}",
        "`omniwatch plan --profile int4`",
        NOT,
    )
    yield Row(
        "in INT4 it runs on an Orin of 64 GB",
        f"{_gb(int4.needed_bytes)} of {_gb(int4.available_bytes)}: whole, without loading in turn",
        "`omniwatch plan --quantization int4`",
        "held, for memory",
    )
    yield Row("first frame 1.1 s on an Orin", "not measured", "needs an Orin: `omniwatch probe`", CANNOT)
    yield Row("one stream takes 38 W", "not measured", "needs an Orin: `jetson_rail_power_watts`", CANNOT)
    yield Row(
        "`--disable-talker true`",
        "no flag of vLLM 0.30; `disable_talker()` exists in transformers. Profile `orin-text` does it by its deploy file",
        "`omniwatch check --vllm PROGRAM`",
        NOT,
    )
    yield Row(
        "`--gpu-memory-utilization 0.75`",
        f"takes {0.75 * 64:g} GB of 64 at start, needed or not, and each stage takes as much",
        "`omniwatch install --profile int4`",
        "held, as a flag",
    )
    yield Row(
        "`CPUQuota=50%` keeps the GPU's clock",
        "it stops every thread of the server, for up to 96 ms in a period of 100 ms on 12 cores: longer than one codec frame",
        "`omniwatch tune`",
        NOT,
    )
    silent = _plan(talker=False)
    bench = "needs a GPU: `omniwatch bench chain` before and after"
    yield Row(
        "`disable_talker()` saves 10 to 12 GB",
        f"weights {_gb(whole.weights_bytes - silent.weights_bytes)}, with one stream's KV cache, contexts and activations "
        f"{_gb(whole.needed_bytes - silent.needed_bytes)} (the last two assumed). No flag of vLLM: a deploy file without the talker",
        "`omniwatch plan --no-talker`; profile `orin-text`",
        PARTLY,
    )
    yield Row(
        "INT4 (GPTQ): memory -48 %, throughput less than -5 %",
        f"weights {int4.weights_bytes / whole.weights_bytes - 1:.0%} against bf16, all that is needed "
        f"{int4.needed_bytes / whole.needed_bytes - 1:.0%}; `--quantization` takes a quantised checkpoint; throughput not measured",
        f"`omniwatch plan --ladder`; throughput {bench}",
        NOT,
    )
    yield Row(
        "video at 1 frame a second: memory -18 %, first frame -0.1 s",
        """`--media-io-kwargs '{"video": {"fps": 1}}'`; not measured""",
        f"{bench}, with videos beside the questions",
        CANNOT,
    )
    yield Row(
        "PagedAttention blocks of 512: P99 -25 %",
        "`--block-size`; which sizes it takes depends on the attention backend; not measured",
        f"{bench}, with 368 turns or more for a P99",
        CANNOT,
    )
    yield Row(
        "CUDA graphs: first frame -30 ms",
        "on by default in vLLM 0.30; `--enforce-eager` switches them off; not measured",
        f"{bench}, with and without `--enforce-eager`",
        CANNOT,
    )
    yield Row(
        "160 GB or more for 120 s of video",
        "Qwen's own 144.81 GB is for transformers; vLLM prefills in chunks, so that the peak is another",
        "needs a GPU",
        CANNOT,
    )
    limit = bound(_wanted("int4"), int4)
    assert limit is not None
    yield Row(
        "30 s of sound and picture on an Orin, first frame about 1 s",
        f"decoding is at most {limit.thinker_tokens_s:.0f} thinker tokens/s and {limit.frames_s:.0f} codec frames/s by "
        "bandwidth alone, so the speed is not excluded",
        "`omniwatch plan --quantization int4`; needs an Orin",
        CANNOT,
    )
    in_int4, in_bf16 = (
        _plan(kind, talker=False, max_model_len=TEXT_ONLY_TOKENS).needed_bytes for kind in ("int4", "bf16")
    )
    yield Row(
        "without the talker a card of 24 GB is enough",
        f"thinker with {TEXT_ONLY_TOKENS} tokens: in INT4 {_gb(in_int4)}, in bf16 {_gb(in_bf16)}",
        f"`omniwatch plan --no-talker --quantization int4 --max-model-len {TEXT_ONLY_TOKENS}`",
        "held, in INT4 only" if in_int4 <= 24e9 < in_bf16 else NOT,
    )
    spared = 1 - sum(part.parameters for part in silent.components) / whole.parameters
    yield Row(
        "and 40 % of the computing is saved",
        f"the talker's side has {spared:.0%} of the parameters; how much of the time needs a GPU",
        plan,
        CANNOT,
    )
    yield Row(
        "recommended: in the cloud, many at once, the native model, which beats the chain of three in latency and throughput",
        "by the table's own figures: first frame 0.51 against 1.9 s, P99 2.1 against 3.4 s, 1350 against 1020 tokens/s. Against them: "
        "its 144.8 GB cannot have been measured on the one card of 80 GB that is named",
        "comparison; of one's own: `omniwatch bench chain`",
        PARTLY,
    )
    yield Row(
        "recommended: at the edge INT4 in segments on an Orin of 64 GB, with a first frame of about 1 s, which is enough",
        f"42 of 64 GB as published, and computed {_gb(int4.needed_bytes)} whole, so that no segment needs to be loaded in turn. "
        "Its own first frame, 1.1 s, is past the other document's red line of 0.75 s",
        "`omniwatch plan --quantization int4`; `omniwatch advise --memory-gb 64 --red-line-ms 750`",
        PARTLY,
    )
    yield Row(
        "recommended: where cost counts, text and pictures only, without the talker, on one card of 24 GB, which saves 40 %",
        f"memory holds in INT4 only; {spared:.0%} of the parameters are gone, not 40 %; how much computing is not measured",
        f"`omniwatch plan --no-talker --quantization int4 --max-model-len {TEXT_ONLY_TOKENS}`",
        PARTLY,
    )
    yield Row(
        '(beside them) NVIDIA: Qwen3-30B-A3B in GPTQ-Int4, 15,938 "MB"',
        f"{_parts(int4, 'thinker_experts', 'thinker_attention', 'thinker_embedding', 'thinker_routers') / 2**20:,.0f} MiB: "
        'within 0.5 % if "MB" is read as MiB',
        "`omniwatch plan --quantization int4`; TensorRT Edge-LLM 0.7.0, Thor",
        HELD,
    )
