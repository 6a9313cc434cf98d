"""Write the cut model's config.json: the number of experts, and the quantiser's settings. Pure."""

from __future__ import annotations

import json
from typing import Any

from omniwatch.desk.plan.model import CONFIG
from omniwatch.desk.slice import SliceError
from omniwatch.desk.slice.keep_file import Keep
from omniwatch.desk.slice.quantization import KEYS, Renumbering
from omniwatch.desk.slice.source import Source, config_of, text_config

NUMBER_KEYS = ("num_experts", "num_local_experts")
"""What the number of experts is called: by Qwen's own files, and by transformers 5.14 in the talker."""


def cut(source: Source, keep: Keep) -> bytes:
    """Return the new config.json. Raises SliceError for an entry that is not understood."""
    config = config_of(source)
    for part, found in source.parts.items():
        text = text_config(config, part)
        present = [key for key in NUMBER_KEYS if key in text] or [NUMBER_KEYS[0]]
        for key in present:
            if text.get(key, found.experts) != found.experts:
                raise SliceError(
                    f"{source.directory / CONFIG}: {part}: {key} is {text[key]}, a layer has {found.experts} experts"
                )
            text[key] = keep.count(part, found.experts)
    _renumber(config, Renumbering(source, keep), str(source.directory / CONFIG))
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()


def cut_settings(content: bytes, source: Source, keep: Keep, where: str) -> bytes:
    """Return a quantiser's own file for the cut model. Raises SliceError."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SliceError(f"{where}: not JSON: {error}") from error
    return (json.dumps(Renumbering(source, keep).settings(found, where), indent=2) + "\n").encode()


def _renumber(found: Any, renumbering: Renumbering, where: str) -> None:
    """Renumber the quantiser's settings wherever in a config they stand."""
    if not isinstance(found, dict):
        return
    for key, value in found.items():
        if key in KEYS:
            found[key] = renumbering.settings(value, f"{where}: {key}")
        else:
            _renumber(value, renumbering, where)
