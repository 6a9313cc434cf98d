"""`slice compare`: give the original's answers to the original and to the cut model, and measure where they disagree."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from omniwatch.desk.slice import (
    SliceError,
    answers,
    asking,
    card,
    config,
    cost,
    keep_file,
    passing,
)
from omniwatch.desk.slice import source as sources
from omniwatch.desk.slice import tensors as weights
from omniwatch.desk.slice.asking import Sample
from omniwatch.desk.slice.cost import Cost, Lost, Tokens
from omniwatch.desk.slice.routing import Routing
from omniwatch.desk.slice.skeleton import Skeleton, check_version
from omniwatch.desk.slice.streaming import Done, Flow
from omniwatch.system import atomic_write, user_file

TOKENS_AT_ONCE = 64
"""Places whose logits are held at once: 64 take 80 MB in each model."""
Told = Callable[[str], None]


class Pair:
    """The original and a cut of it, checked: what both are asked, and what the original answered."""

    def __init__(self, model: Path, out: Path, data: Path, said: Path) -> None:
        check_version()
        self.whole, self.cut = sources.read(model), sources.read(out)
        for source in (self.whole, self.cut):
            weights.check_plain(source)
        path = out / keep_file.NAME
        if not path.exists():
            raise SliceError(f"{out}: no {keep_file.NAME}: not written by `omniwatch slice apply`")
        self.keep, self.keep_bytes = keep_file.read(path)
        keep_file.check(self.keep, path, self.whole)
        if config.cut(self.whole, self.keep) != self.cut.config:
            raise SliceError(f"{out}: its config.json is not what {keep_file.NAME} makes of {model}'s")
        if not (out / card.NAME).is_file():
            raise SliceError(f"{out}: no {card.NAME} to write into")
        self.out = out
        asked = asking.read(data)
        found, self.answers_sha256 = answers.read(said, self.whole.config_sha256, asked)
        if not found:
            raise SliceError(
                f"{said}: no answers in it: `omniwatch slice score MODEL DATA --out {said} --answers` makes them"
            )
        self.folder = said
        self.answers = found
        self.asked = [one for one in asked if one.name in found]

    def gone(self, part: str, layer: int) -> list[int]:
        """Return the experts that the cut model lacks."""
        kept = self.keep.numbers(part, layer)
        return [] if kept is None else sorted(set(range(self.whole.parts[part].experts)) - set(kept))


def compare(pair: Pair, *, device: str, told: Told) -> Cost:
    """Measure. Raises SliceError, OSError."""
    with torch.no_grad():
        return _measured(pair, device, told)


def _measured(pair: Pair, device: str, told: Told) -> Cost:
    samples = asking.Processor(pair.whole.directory).samples(pair.asked, pair.answers, written=False)
    parts = answers.parts_heard(pair.whole.parts, pair.answers.values())
    lost: list[Lost] = []
    with tempfile.TemporaryDirectory(prefix="compare.", dir=pair.folder) as name:
        folders = [Path(name) / which for which in ("original", "cut")]
        models, flows = [], []
        for source, folder in zip((pair.whole, pair.cut), folders, strict=True):
            folder.mkdir()
            skeleton = Skeleton(source, device)
            done = {part: _done(pair, part, skeleton, folder.name, lost, told) for part in parts}
            models.append(skeleton)
            flows.append(passing.run(skeleton, folder, samples, parts=parts, done=done))
        found = {}
        for part in parts:
            states = [
                flow[part].states(model.layers[part]) for model, flow in zip(models, flows, strict=True)
            ]
            heads = [model.head(part) for model in models]
            said = _said(part, samples, flows[0][part])
            found[part] = cost.agreement([_tokens(heads, states, *one) for one in said])
            del states, heads
    return Cost(
        model_sha256=pair.whole.config_sha256,
        keep_sha256=hashlib.sha256(pair.keep_bytes).hexdigest(),
        answers_sha256=pair.answers_sha256,
        parts=found,
        lost=lost,
    )


def publish(pair: Pair, found: Cost) -> None:
    """Put the table into OUT's card. Raises SliceError, OSError."""
    path = pair.out / card.NAME
    text = card.with_comparison(user_file.read_text(path), cost.markdown(found))
    if text is None:
        raise SliceError(f"{path}: has no place for what `compare` finds")
    atomic_write.replace(path, text.encode())


def _done(pair: Pair, part: str, skeleton: Skeleton, which: str, lost: list[Lost], told: Told) -> Done:
    def done(number: int, routing: Routing | None) -> None:
        if routing is not None and which == "original":
            lost.append(Lost(part, number, routing.share(pair.gone(part, number))))
        told(f"{which}, {part}: layer {number + 1} of {skeleton.layers[part]}")

    return done


def _said(part: str, samples: Sequence[Sample], flow: Flow) -> list[tuple[int, list[int]]]:
    """Return, for each answer, the place whose state tells its first token, and its tokens."""
    said = {sample.name: sample.answer for sample in samples}
    found = []
    for place in flow.places:
        answer = said[place.name]
        assert answer is not None  # only questions with answers are asked here
        tokens = answer.ids if part == "thinker" else [*(frame[0] for frame in answer.codes), answer.last]
        found.append((place.end - len(tokens), tokens))
    return found


def _tokens(heads: Sequence[Any], states: Sequence[Any], begin: int, said: list[int]) -> Tokens:
    """Sum up one answer, in float64."""
    sums = [0.0, 0.0, 0.0, 0.0]
    for at in range(0, len(said), TOKENS_AT_ONCE):
        tokens = torch.tensor(said[at : at + TOKENS_AT_ONCE])
        within = slice(begin + at, begin + at + len(tokens))
        whole, cut = (
            torch.log_softmax(head(state[within]).double().cpu(), dim=-1)
            for head, state in zip(heads, states, strict=True)
        )
        sums[0] += float((whole.exp() * (whole - cut)).sum())
        sums[1] += int((whole.argmax(-1) == cut.argmax(-1)).sum())
        sums[2] -= float(whole.gather(1, tokens[:, None]).sum())
        sums[3] -= float(cut.gather(1, tokens[:, None]).sum())
    return Tokens(len(said), sums[0], int(sums[1]), sums[2], sums[3])
