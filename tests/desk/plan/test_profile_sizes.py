"""The sizes in deploy/profiles are those that `omniwatch plan` computes."""

from __future__ import annotations

import pytest

from helpers.paths import CLONE
from helpers.profile_sizes import with_sizes
from omniwatch.bundle import profiles
from omniwatch.desk.plan import profile_sizes
from omniwatch.desk.plan.model import PlanError

PLANNED = [name for name in profiles.available() if profiles.load(name).plan]


@pytest.mark.parametrize("name", PLANNED)
def test_each_profile_has_the_sizes_of_its_plan(name):
    profile = (CLONE / profiles.FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert profile == with_sizes(profile), f"{name}: `make profiles` writes the sizes anew"


@pytest.mark.parametrize("name", PLANNED)
def test_rounded_parts_add_up_to_what_is_needed(name):
    profile = profiles.load(name)
    assert profile.plan is not None
    needed = profile_sizes.result(profile.plan).needed_bytes / 1e9
    assert profile.computed_gb() == pytest.approx(needed, abs=0.15)


def test_sizes_are_replaced_where_they_stand():
    first = with_sizes("summary: s\nplan:\n  talker: false\nclaimed: 0.5\n")
    assert first.startswith(
        "summary: s\nplan:\n  talker: false\n# Written by `make profiles`.\ncomputed:\n  - {"
    )
    assert first.endswith("gb: 1.5}\nclaimed: 0.5\n"), first
    other = with_sizes(first.replace("talker: false", "talker: true"))
    assert other.count("computed:") == 1
    assert "talker in bf16" in other
    assert with_sizes("summary: s\ncannot: be\n") == "summary: s\ncannot: be\n"


@pytest.mark.parametrize(
    ("planned", "says"),
    [
        (profiles.Planned(quantization=["int3"]), '"int3": expected bf16'),
        (profiles.Planned(max_model_len=100000), "--max-model-len 100000: the model takes 1 to 65536"),
    ],
)
def test_a_plan_that_does_not_hold(planned, says):
    with pytest.raises(PlanError, match=says):
        profile_sizes.parts(planned)
