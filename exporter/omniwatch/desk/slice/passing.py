"""Send questions and answers through the thinker and the talker of one checkpoint, in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from omniwatch.desk.slice.asking import Sample
from omniwatch.desk.slice.skeleton import Skeleton
from omniwatch.desk.slice.streaming import SPEECH, Done, Flow, kinds_of


def thinker(skeleton: Skeleton, folder: Path, samples: Sequence[Sample]) -> Flow:
    """Write what goes into the thinker's first layer. Raises SliceError, OSError."""
    config = skeleton.config.thinker_config
    with skeleton.tensors.held():
        skeleton.load_hearing(any("pixel_values" in sample.inputs for sample in samples))
        entries = []
        for sample in samples:
            fed = sample.fed()
            entries.append((sample.name, skeleton.heard(fed), kinds_of(fed["input_ids"][0], config)))
        return Flow.made(folder, "thinker", skeleton.texts["thinker"].hidden_size, entries)


def listened(skeleton: Skeleton) -> tuple[int, ...]:
    """Return the thinker's layers whose input the talker needs."""
    return (0, skeleton.config.talker_config.accept_hidden_layer) if "talker" in skeleton.texts else ()


def talker(skeleton: Skeleton, folder: Path, heard: Flow, samples: Sequence[Sample]) -> Flow:
    """Write what goes into the talker's first layer, for each sample with codec tokens. Raises SliceError, OSError."""
    config = skeleton.config.talker_config
    embeds, hidden = heard.states(0), heard.states(config.accept_hidden_layer)
    if config.accept_hidden_layer == skeleton.layers["thinker"]:
        hidden = skeleton.normed("thinker", hidden)
    entries = []
    with skeleton.tensors.held():
        skeleton.load_speaking()
        for sample, place in zip(samples, heard.places, strict=True):
            answer = sample.answer
            if answer is None or not answer.codes:
                continue
            within = slice(place.begin, place.end)
            codes = torch.tensor(answer.codes)
            entry, tokens = skeleton.spoken(
                sample.inputs, sample.sequence(), embeds[within], hidden[within], codes, answer.speaker
            )
            frames = torch.full((len(codes),), SPEECH)
            entries.append((sample.name, entry, torch.cat((kinds_of(tokens.cpu(), config), frames))))
        return Flow.made(folder, "talker", skeleton.texts["talker"].hidden_size, entries)


def run(
    skeleton: Skeleton,
    folder: Path,
    samples: Sequence[Sample],
    *,
    parts: Sequence[str],
    done: dict[str, Done],
) -> dict[str, Flow]:
    """Go through all layers of the parts; return the flows, whose last states are there. Raises SliceError, OSError."""
    flows = {"thinker": thinker(skeleton, folder, samples)}
    flows["thinker"].run(skeleton, 0, listened(skeleton), done["thinker"])
    if "talker" in parts:
        flows["talker"] = talker(skeleton, folder, flows["thinker"], samples)
        flows["talker"].run(skeleton, 0, (), done["talker"])
    return flows
