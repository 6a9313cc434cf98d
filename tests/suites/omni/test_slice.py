"""`omniwatch slice` on tiny models, with torch, in float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suites.omni.installation import Say, directory, install
from suites.omni.slices import KEPT, cut, program


@pytest.fixture(scope="module")
def model(say: Say) -> Path:
    install(directory(), say)
    return directory() / "model"


@pytest.fixture(scope="module")
def steps(model: Path, tmp_path_factory: pytest.TempPathFactory, say: Say) -> dict[str, Any]:
    """What came of all steps, on a model of random experts and on one whose experts are known (slicing/made.py)."""
    found: dict[str, Any] = program("steps.py", model, tmp_path_factory.mktemp("steps"))
    say(f"  scores and comparisons: {found['seconds']:.0f} s, {found['peak_mb']:.0f} MB at most")
    return found


def lines(found: dict[str, str], part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in found[f"{part}.scores.jsonl"].splitlines()]


def test_a_cut_model_is_the_original_with_the_dropped_experts_masked(
    model: Path, tmp_path: Path, say: Say
) -> None:
    out = cut(model, tmp_path, KEPT)
    found = program("equality.py", model, out, tmp_path / "keep.json")
    assert found["keys"] == {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []}
    say(f"  cut and masked differ by {found['differences']} (thinker, talker; three inputs)")
    assert all(difference <= 1e-5 for pair in found["differences"] for difference in pair)
    # The experts that went did matter.
    assert all(cost > 1e-4 for cost in found["cost"])


def test_scores_are_those_of_a_model_that_answers(steps: dict[str, Any], say: Say) -> None:
    """The talker's, too: brute force listens while it generates, frame by frame; `score` has the frames at once."""
    assert steps["score"]["exit"] == 0, steps["score"]["err"]
    brute = {(one["part"], one["layer"], one["kind"], one["expert"]): one for one in steps["brute"]}
    scored = {
        (part, line["layer"], kind, expert): (line["counts"][kind][expert], score)
        for part in ("thinker", "talker")
        for line in lines(steps["scores"], part)
        for kind, of_kind in line["scores"].items()
        for expert, score in enumerate(of_kind)
        if line["counts"][kind][expert]
    }
    assert scored.keys() == brute.keys()
    assert {kind for _, _, kind, _ in scored} == {"speech", "picture", "text"}
    assert {place: count for place, (count, _) in scored.items()} == {
        place: one["count"] for place, one in brute.items()
    }
    worst = max(abs(score / brute[place]["score"] - 1) for place, (_, score) in scored.items())
    say(f"  {len(scored)} scores, off by {worst:.1e} at most")
    assert worst <= 1e-5


def test_the_ranking_is_whole_a_layer_a_line(steps: dict[str, Any]) -> None:
    """As vllm-ascend's pruning at load reads it."""
    for part, layers in (("thinker", 3), ("talker", 2)):
        found = [json.loads(line) for line in steps["scores"][f"{part}.ranking.jsonl"].splitlines()]
        assert [list(one) for one in found] == [[str(layer)] for layer in range(layers)]
        assert all(sorted(order) == list(range(6)) for one in found for order in one.values())


def test_without_answers_only_the_thinker_is_scored_and_that_is_said(steps: dict[str, Any]) -> None:
    done = steps["undisturbed"]
    assert done["exit"] == 0, done["err"]
    assert "thinker: scores of speech, text\n" in done["out"]
    assert "talker: no scores, as there are no answers (--answers)" in done["out"]
    assert "talker.scores.jsonl" not in steps["thinker alone"]


def test_a_run_that_was_killed_goes_on_at_its_layer(steps: dict[str, Any]) -> None:
    done = steps["killed"]
    assert done["killed"]
    assert done["exit"] == 0, done["err"]
    assert done["err"] == "thinker: goes on with layer 3 of 3\nthinker: layer 3 of 3\n"
    assert done["files"] == steps["thinker alone"]
    done = steps["killed in the talker"]
    assert done["killed"]
    assert done["exit"] == 0, done["err"]
    assert done["err"] == "talker: goes on with layer 2 of 2\ntalker: layer 2 of 2\n"
    assert done["files"] == steps["both"]


def test_a_disk_without_room_for_the_activations_is_said(steps: dict[str, Any]) -> None:
    refused = steps["full"]["refused"]
    assert (refused["exit"], refused["out"]) == (2, "")
    assert refused["err"].endswith("full/work: File too large\n")
    assert len(refused["err"].splitlines()) == 1
    assert steps["full"]["exit"] == 0, steps["full"]["err"]
    assert steps["full"]["files"] == steps["thinker alone"]


def test_answers_are_kept_and_nothing_else_is_left(steps: dict[str, Any]) -> None:
    assert steps["answered"]["exit"] == 0, steps["answered"]["err"]
    assert "talker: scores of speech, text" in steps["answered"]["out"]
    assert set(steps["left"]) == {
        "answers", "answers.jsonl", "lock", "scores.json",
        "talker.ranking.jsonl", "talker.scores.jsonl", "thinker.ranking.jsonl", "thinker.scores.jsonl",
    }  # fmt: skip


def test_keep_drops_exactly_what_does_no_work(steps: dict[str, Any]) -> None:
    assert steps["keep"]["exit"] == 0, steps["keep"]["err"]
    for part, layers in (("thinker", 3), ("talker", 2)):
        assert steps["kept"][part]["layers"] == {str(layer): [0, 2] for layer in range(layers)}


def test_what_does_no_work_costs_nothing(steps: dict[str, Any], say: Say) -> None:
    assert steps["free"]["exit"] == 0, steps["free"]["err"]
    found = json.loads(steps["free"]["out"])
    for part in ("thinker", "talker"):
        one = found["parts"][part]
        say(f"  {part}: KL {one['divergence']['value']:.1e} where copies and idle experts went")
        assert one["answers"] == 3
        assert one["divergence"]["value"] < 1e-6
        assert one["same_choice"] == {"value": 1.0, "low": 1.0, "high": 1.0}
        assert one["perplexity_cut"]["value"] == pytest.approx(one["perplexity"]["value"], rel=1e-4)
    # A copy had its share: that alone is no cost, and the table says both.
    assert all(0 < lost["share"] < 0.5 for lost in found["lost"])


def test_a_needed_expert_that_went_is_seen_in_its_layer(steps: dict[str, Any], say: Say) -> None:
    assert steps["needed"]["exit"] == 0, steps["needed"]["err"]
    found = json.loads(steps["needed"]["out"])
    shares = {(lost["part"], lost["layer"]): lost["share"] for lost in found["lost"]}
    say(f"  {shares}")
    assert {place for place, share in shares.items() if share > 0.1} == {("thinker", 1), ("talker", 1)}
    assert all(share < 1e-6 for place, share in shares.items() if place[1] != 1)
    for part in ("thinker", "talker"):
        one = found["parts"][part]
        say(
            f"  {part}: KL {one['divergence']['value']:.2f}, same first choice {one['same_choice']['value']:.0%}"
        )
        assert one["divergence"]["low"] > 0.1
        assert one["same_choice"]["high"] < 1.0
        assert one["perplexity_cut"]["value"] > 1.5 * one["perplexity"]["value"]


def test_the_card_has_the_table_once(steps: dict[str, Any]) -> None:
    assert steps["again"]["exit"] == 0, steps["again"]["err"]
    card = steps["card"]
    assert card.count("| thinker | KL of the next token, nats |") == 1
    assert "This is agreement with the original on the original's own answers, not quality" in card
    assert "Not measured yet" not in card
    assert "same first choice" in steps["again"]["out"]


REFUSED = {
    "no model": "nothing: not a directory",
    "no questions": "nothing: no such folder",
    "no WAV": "empty: no *.wav in it",
    "a video": "two has a video: pictures are taken, videos are not",
    "packed": "is I16: scores and comparisons are of a checkpoint that is not quantised",
    "of another model": "has scores of another model: name another folder",
    "of other questions": "has scores of other questions: name another folder",
    "something else": "holds something else: name a new folder",
    "no such device": "--device cuda:7: ",
    "no such voice": "--speaker Bob: the model has aiden, chelsie, ethan",
    "no answers": "no answers in it: `omniwatch slice score MODEL DATA --out",
    "no cut model": "no keep.json: not written by `omniwatch slice apply`",
    "a cut of another": "of another model",
    "answers to others": "an answer to another question: one",
    "half of it": "--native and --asr go together",
    "no address": "--native: expected http://HOST:PORT",
    "nobody there": "no answer could be transcribed: POST /v1/audio/transcriptions",
}


def test_each_refusal_is_one_line(steps: dict[str, Any]) -> None:
    assert steps["refusals"].keys() == REFUSED.keys()
    for name, done in steps["refusals"].items():
        assert (done["exit"], done["out"]) == (2, ""), (name, done)
        assert len(done["err"].splitlines()) == 1, (name, done)
        assert REFUSED[name] in done["err"], (name, done)
        assert not done["left"], name
