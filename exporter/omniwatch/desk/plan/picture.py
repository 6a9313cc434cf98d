"""Draw a plan: a bar of what is needed, component on component, against the device's memory as a line."""

from __future__ import annotations

from pathlib import Path

from omniwatch.desk import plotting
from omniwatch.desk.plan.memory import Result

# Okabe and Ito's palette, told apart by colour-blind readers too; lighter shades for a stage's smaller parts.
COLOURS = {
    "thinker_experts": "#0072B2",
    "thinker_attention": "#3A93C7",
    "thinker_embedding": "#6FB2DA",
    "thinker_routers": "#9CCBE8",
    "audio_encoder": "#56B4E9",
    "vision_encoder": "#8FD0F2",
    "talker_experts": "#009E73",
    "talker_rest": "#4DBD9D",
    "code_predictor": "#8AD4BF",
    "code2wav": "#CC79A7",
    "kv": "#E69F00",
    "overhead": "#999999",
    "system": "#CCCCCC",
}
LIMIT = "#A34700"


def parts(result: Result) -> list[tuple[str, str, int]]:
    """List what is stacked, from below: a key of COLOURS, the words and the bytes."""
    found = [("system", "Linux, sidecar and the rest", result.system_bytes)]
    found += [(part.name, f"{part.words} ({part.type})", part.bytes) for part in result.components]
    found.append(("kv", f"KV cache, {result.streams} x {result.max_model_len} tokens", result.kv_bytes))
    found.append(("overhead", "CUDA contexts, activations", result.overhead_bytes))
    return found


def encoded(result: Result, title: str, path: Path) -> bytes:
    """Return the picture as the kind of file that `path` names, the same bytes for the same plan."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context({"font.size": 9, "svg.hashsalt": "omniwatch"}, after_reset=True):
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        axes = figure.subplots()
        left = 0.0
        for key, words, size in parts(result):
            axes.barh(
                0, size / 1e9, left=left, color=COLOURS[key], label=f"{words}: {size / 1e9:.1f}", height=0.5
            )
            left += size / 1e9
        limit = result.device.memory_bytes / 1e9
        axes.axvline(limit, color=LIMIT, linewidth=1.5)
        axes.annotate(
            f"{result.device.name}: {limit:.1f} GB",
            (limit, 0.42),
            color=LIMIT,
            ha="right",
            xytext=(-4, 0),
            textcoords="offset points",
        )
        axes.set_xlim(0, max(left, limit) * 1.02)
        axes.set_ylim(-0.3, 0.5)
        axes.set_yticks([])
        axes.set_xlabel("GB (10^9 bytes)")
        axes.set_title(title, loc="left")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3, frameon=False, fontsize=8)
        return plotting.encoded(figure, path)
