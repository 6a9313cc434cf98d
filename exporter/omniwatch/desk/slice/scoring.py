"""`slice score`: how much each expert was needed, by kind of input, layer by layer; a run that was killed goes on at its layer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import torch

from omniwatch import __version__
from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.slice import SliceError, answering, answers, asking, passing, ranking, scores, work
from omniwatch.desk.slice import source as sources
from omniwatch.desk.slice import tensors as weights
from omniwatch.desk.slice.answers import Answer
from omniwatch.desk.slice.asking import Sample
from omniwatch.desk.slice.routing import Routing
from omniwatch.desk.slice.scores import About, Layer, PartOfModel
from omniwatch.desk.slice.skeleton import Skeleton, check_version
from omniwatch.desk.slice.source import Source
from omniwatch.desk.slice.streaming import Done, Flow
from omniwatch.system import atomic_write, user_file

WORK = "work"
"""The folder of activations, in OUT while the scores are made."""
Told = Callable[[str], None]


class State(msgspec.Struct):
    """How far a run is: the part under way, and the layer that is next."""

    identity: str
    part: str
    layer: int


class Scored(msgspec.Struct):
    """What there is at the end: the parts with scores, and the kinds of input that each met."""

    parts: dict[str, tuple[str, ...]]
    without: tuple[str, ...]
    """Parts with experts that have no scores."""


def score(
    model: Path, data: Path, out: Path, *, device: str, limits: answering.Limits | None, told: Told
) -> Scored:
    """Write scores and rankings into OUT; with `limits` have the model answer first. Raises SliceError, ChainError, OSError."""
    check_version()
    source = sources.read(model)
    weights.check_plain(source)
    asked = asking.read(data)
    if limits is not None:
        answering.check_speaker(source, limits.speaker)
    out.mkdir(exist_ok=True)
    with work.alone(out / "lock", f"{out}: another slice score is at work there"):
        _check_same(out, source, asked)
        if limits is not None:
            _answer(source, asked, out, device, limits, told)
        said, said_sha256 = answers.read(out, source.config_sha256, asked)
        with torch.no_grad():
            return _Run(source, asked, said, said_sha256, out, device, told).whole()


def _answer(
    source: Source, asked: Sequence[Asked], out: Path, device: str, limits: answering.Limits, told: Told
) -> None:
    there, _ = answers.read(out, source.config_sha256, asked)
    if set(there) == {one.name for one in asked}:
        return
    whole = answering.load(source, device)
    answering.make(whole, source, asked, out, limits, set(there), told)


class _Run:
    def __init__(
        self,
        source: Source,
        asked: Sequence[Asked],
        said: dict[str, Answer],
        said_sha256: str,
        out: Path,
        device: str,
        told: Told,
    ) -> None:
        self._source, self._asked, self._said = source, asked, said
        self._out, self._device, self._told = out, device, told
        self._work = out / WORK
        self._about = _about(source, asked, said_sha256)
        self._identity = scores.encoded(self._about).decode() + __version__
        self._parts = answers.parts_heard(source.parts, said.values())

    def whole(self) -> Scored:
        """Do what is left to do."""
        if not self._is_there():
            state = self._state()
            if state is None:
                self._begin()
                state = State(self._identity, "thinker", 0)
            self._go(state)
            shutil.rmtree(self._work)
        found = {part: scores.read(self._out, part, self._source.parts[part]) for part in self._parts}
        return Scored(
            {part: one.modalities for part, one in found.items()},
            tuple(part for part in self._source.parts if part not in self._parts),
        )

    def _is_there(self) -> bool:
        if self._work.exists() or not (self._out / scores.NAME).exists():
            return False
        return scores.read_about(self._out) == self._about and all(
            scores.ranking_file(self._out, part).exists() for part in self._parts
        )

    def _state(self) -> State | None:
        with suppress(OSError, msgspec.DecodeError):
            state = msgspec.json.decode(user_file.read(self._work / "state.json"), type=State)
            if state.identity == self._identity:
                return state
        return None

    def _begin(self) -> None:
        """Remove what is of other answers, and say what the scores are of."""
        shutil.rmtree(self._work, ignore_errors=True)
        for part in self._source.parts:
            for path in (scores.scores_file(self._out, part), scores.ranking_file(self._out, part)):
                path.unlink(missing_ok=True)
        self._work.mkdir()
        atomic_write.replace(self._out / scores.NAME, scores.encoded(self._about), durable=True)

    def _go(self, state: State) -> None:
        skeleton = Skeleton(self._source, self._device)
        samples = asking.Processor(self._source.directory).samples(self._asked, self._said, written=True)
        flow = self._flow(skeleton, "thinker", samples, state)
        if "talker" in self._parts:
            self._flow(skeleton, "talker", samples, state, flow)

    def _flow(
        self,
        skeleton: Skeleton,
        part: str,
        samples: Sequence[Sample],
        state: State,
        heard: Flow | None = None,
    ) -> Flow:
        """Take a part to its end, from the layer where an earlier run was."""
        width = skeleton.texts[part].hidden_size
        last = skeleton.layers[part]
        kept = passing.listened(skeleton) if part == "thinker" else ()
        begin = state.layer if state.part == part else last if part == "thinker" else 0
        flow = Flow.found(self._work, part, width, begin)
        if flow is None:
            begin = 0
            if heard is None:
                flow = passing.thinker(skeleton, self._work, samples)
            else:
                flow = passing.talker(skeleton, self._work, heard, samples)
        elif 0 < begin < last:
            self._told(f"{part}: goes on with layer {begin + 1} of {last}")
        flow.run(skeleton, begin, kept, self._done(part, last))
        self._rank(part)
        return flow

    def _done(self, part: str, last: int) -> Done:
        def done(number: int, routing: Routing | None) -> None:
            if routing is not None:
                self._keep(part, routing.layer(number))
            self._save(State(self._identity, part, number + 1))
            self._told(f"{part}: layer {number + 1} of {last}")

        return done

    def _keep(self, part: str, layer: Layer) -> None:
        path = scores.scores_file(self._out, part)
        lines = user_file.read(path, scores.MOST_BYTES).splitlines() if path.exists() else []
        others = [line for line in lines if msgspec.json.decode(line, type=Layer).layer < layer.layer]
        content = b"".join(line + b"\n" for line in [*others, msgspec.json.encode(layer)])
        atomic_write.replace(path, content, durable=True)

    def _rank(self, part: str) -> None:
        found = scores.read(self._out, part, self._source.parts[part])
        orders = {number: ranking.order(one.scores, one.counts) for number, one in found.layers.items()}
        content = scores.ranking_lines(orders)
        atomic_write.replace(scores.ranking_file(self._out, part), content, durable=True)

    def _save(self, state: State) -> None:
        atomic_write.replace(self._work / "state.json", msgspec.json.encode(state), durable=True)


def _about(source: Source, asked: Sequence[Asked], said_sha256: str) -> About:
    return About(
        config_sha256=source.config_sha256,
        data_sha256=answers.digest(asked),
        answers_sha256=said_sha256,
        parts={
            name: PartOfModel(part.experts, part.chosen, part.layers) for name, part in source.parts.items()
        },
    )


def _check_same(out: Path, source: Source, asked: Sequence[Asked]) -> None:
    """Raise SliceError where OUT is of something else: scores are never mixed."""
    if (out / scores.NAME).exists():
        about = scores.read_about(out)
        if about.config_sha256 != source.config_sha256:
            raise SliceError(f"{out}: has scores of another model: name another folder")
        if about.data_sha256 != answers.digest(asked):
            raise SliceError(f"{out}: has scores of other questions: name another folder")
    elif not (out / answers.NAME).exists() and any(path.name != "lock" for path in out.iterdir()):
        raise SliceError(f"{out}: holds something else: name a new folder")
