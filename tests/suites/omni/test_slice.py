"""`omniwatch slice` on the tiny model, with torch, in float32."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites.omni.installation import Say, directory, install
from suites.omni.slices import KEPT, cut, program


@pytest.fixture(scope="module")
def model(say: Say) -> Path:
    install(directory(), say)
    return directory() / "model"


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
