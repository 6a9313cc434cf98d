"""Which experts `slice keep` chooses, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers import slices
from omniwatch.cli import main
from omniwatch.desk.slice import keep_file, ranking, source

SCORED = {0: [0.1, 0.9, 0.5, 0.2], 1: [0.4, 0.3, 0.2, 0.1]}


def folder(
    tmp_path: Path, thinker: dict[int, dict[str, list[float]]] | None = None, **counts: list[int]
) -> Path:
    """Scores of the thinker alone, of a model that speaks."""
    model = slices.made(tmp_path / "model", "single")
    found = source.read(model)
    scores = tmp_path / "scores"
    scores.mkdir(exist_ok=True)
    parts = {
        name: {"experts": part.experts, "chosen": part.chosen, "layers": part.layers}
        for name, part in found.parts.items()
    }
    about = {"schema": 1, "config_sha256": found.config_sha256, "data_sha256": "", "parts": parts}
    (scores / "scores.json").write_text(json.dumps(about))
    lines = [
        {"layer": layer, "scores": kinds, "counts": {kind: counts.get(kind, [9, 9, 9, 9]) for kind in kinds}}
        for layer, kinds in (thinker or {layer: {"speech": row} for layer, row in SCORED.items()}).items()
    ]
    (scores / "thinker.scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return scores


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["slice", "keep", *map(str, arguments)])


def chosen(scores: Path, *arguments: object) -> dict[str, tuple[int, ...]]:
    done = run(scores, *arguments)
    assert done.exit_code == 0, done.output
    keep, _ = keep_file.read(scores / "keep.json")
    return keep.parts["thinker"].layers


def refusal(*arguments: object) -> str:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_the_highest_scores_stay_ties_by_number(tmp_path: Path) -> None:
    assert chosen(folder(tmp_path), "--experts", "thinker=2") == {"0": (1, 2), "1": (0, 1)}
    level = {layer: {"speech": [0.5, 0.5, 0.5, 0.5]} for layer in (0, 1)}
    assert chosen(folder(tmp_path, level), "--experts", "thinker=3") == {"0": (0, 1, 2), "1": (0, 1, 2)}


def test_an_expert_that_one_kind_of_input_needs_stays(tmp_path: Path) -> None:
    """Over all tokens, most of which are text, expert 3 would go first."""
    kinds = {"text": [0.9, 0.8, 0.7, 0.0], "speech": [0.1, 0.2, 0.3, 0.4]}
    assert chosen(folder(tmp_path, {0: kinds, 1: kinds}), "--experts", "thinker=2") == {
        "0": (0, 3),
        "1": (0, 3),
    }


def test_an_expert_that_no_token_took_is_last(tmp_path: Path) -> None:
    assert ranking.ranks([0.0, 0.5, 0.0, 0.1], [0, 3, 1, 0]) == [4, 0, 3, 4]
    kinds = {"text": [0.9, 0.8, 0.7, 0.6], "speech": [0.0, 0.0, 0.0, 0.0]}
    found = folder(tmp_path, {0: kinds, 1: kinds}, speech=[0, 0, 0, 0])
    assert chosen(found, "--experts", "thinker=2", "--text-only") == {"0": (0, 1), "1": (0, 1)}


def test_what_is_written_is_what_apply_takes(tmp_path: Path) -> None:
    scores = folder(tmp_path)
    assert run(scores, "--experts", "thinker=3", "--out", tmp_path / "keep.json").exit_code == 0
    arguments = [str(tmp_path / "model"), str(tmp_path / "out"), "--keep", str(tmp_path / "keep.json")]
    done = CliRunner().invoke(main, ["slice", "apply", *arguments])
    assert done.exit_code == 0, done.output
    assert "omniwatch slice score of speech, SHA-256" in (tmp_path / "out/SLICE.md").read_text()
    after = source.read(tmp_path / "out")
    assert {name: part.experts for name, part in after.parts.items()} == {"thinker": 3, "talker": 5}


def test_a_dry_run_prints_it(tmp_path: Path) -> None:
    scores = folder(tmp_path)
    done = run(scores, "--experts", "thinker=2", "--dry-run")
    assert json.loads(done.stdout)["parts"]["thinker"]["layers"] == {"0": [1, 2], "1": [0, 1]}
    assert not (scores / "keep.json").exists()


def test_a_multiple_of_eight_is_advised(tmp_path: Path) -> None:
    assert "thinker=3: a multiple of 8 is advised" in run(folder(tmp_path), "--experts", "thinker=3").stderr


def test_a_part_without_scores_is_refused(tmp_path: Path) -> None:
    assert "no scores of the talker: none are made up" in refusal(folder(tmp_path), "--experts", "2")


def test_scores_without_speech_are_refused(tmp_path: Path) -> None:
    found = folder(tmp_path, {layer: {"text": row} for layer, row in SCORED.items()})
    assert "scores of text, not of speech" in refusal(found, "--experts", "thinker=2")
    assert chosen(found, "--experts", "thinker=2", "--text-only") == {"0": (1, 2), "1": (0, 1)}


@pytest.mark.parametrize(
    ("experts", "says"),
    [
        ("thinker=1", "a token takes 2: at least 2 must stay"),
        ("thinker=5", "5 experts, and a layer has 4"),
        ("many", "expected a number such as 96, or thinker=64,talker=96"),
        ("thinker=2,thinker=3", "thinker twice"),
        ("vocoder=2", '"vocoder": the parts with experts are thinker and talker'),
        ("-2", "expected a number"),
    ],
)
def test_numbers_that_cannot_be(tmp_path: Path, experts: str, says: str) -> None:
    assert says in refusal(folder(tmp_path), f"--experts={experts}")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[:1], "layer 1 is missing"),
        (lambda lines: [*lines, lines[0]], "line 3: layer 0 again"),
        (lambda lines: [lines[0].replace("0.9", '"a"'), lines[1]], "line 1: Expected `float`"),
        (lambda lines: [lines[0].replace("0.9", "-1"), lines[1]], "a value that is negative"),
        (lambda lines: [lines[0].replace("0.9, ", ""), lines[1]], "3 values, a layer has 4 experts"),
        (lambda lines: [lines[0].replace('"layer": 0', '"layer": 7'), lines[1]], "layer 7 has no experts"),
        (
            lambda lines: [lines[0].replace("speech", "smell"), lines[1]],
            "expected scores and counts of speech",
        ),
    ],
)
def test_scores_that_are_not_whole(tmp_path: Path, change: Any, says: str) -> None:
    path = folder(tmp_path) / "thinker.scores.jsonl"
    path.write_text("\n".join(change(path.read_text().splitlines())))
    assert says in refusal(path.parent, "--experts", "thinker=2")


def test_a_folder_without_scores(tmp_path: Path) -> None:
    assert "no scores.json in it" in refusal(tmp_path, "--experts", "2")
    assert "No such file" in refusal(
        tmp_path / "absent.json", "--experts", "thinker=2", "--model", folder(tmp_path).parent / "model"
    )


def test_a_report_of_llm_compressor_is_read_as_scores(tmp_path: Path) -> None:
    model = folder(tmp_path).parent / "model"
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"saliency": list(SCORED.values()), "count": [[3.0, 3.0, 3.0, 3.0]] * 2}))
    given = (report, "--model", model, "--experts", "thinker=2")
    assert "not of speech" in refusal(*given)
    done = run(*given, "--text-only")
    assert done.exit_code == 0, done.output
    keep, _ = keep_file.read(tmp_path / "keep.json")
    assert keep.parts["thinker"].layers == {"0": (1, 2), "1": (0, 1)}
    assert keep.parts["thinker"].scores is not None
    assert keep.parts["thinker"].scores.source == "llm-compressor"
    assert "--model MODEL" in refusal(report, "--experts", "thinker=2")
    assert "a report is of one part" in refusal(report, "--model", model, "--experts", "2")
    report.write_text(json.dumps({"saliency": list(SCORED.values()), "count": [[3.5, 3, 3, 3]] * 2}))
    assert "expected a number for each expert" in refusal(*given)
    report.write_text(json.dumps({"saliency": [[1, 2]]}))
    assert "1 layers, the model has 2 with experts" in refusal(*given)
    report.write_text("{}")
    assert 'no "saliency"' in refusal(*given)
