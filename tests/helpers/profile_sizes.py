"""Write the computed sizes into profiles. As a program: `python tests/helpers/profile_sizes.py deploy/profiles`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import msgspec
import yaml

from omniwatch.bundle.profiles import Planned
from omniwatch.desk.plan import profile_sizes

HEAD = "# Written by `make profiles`.\ncomputed:\n"


def with_sizes(profile: str) -> str:
    """Return a profile's YAML with the sizes of its plan; one without a plan as it is. Raises PlanError."""
    planned = yaml.safe_load(profile).get("plan")
    if planned is None:
        return profile
    parts = profile_sizes.parts(msgspec.convert(planned, Planned))
    sizes = "".join(f"  - {{what: {json.dumps(part.what)}, gb: {part.gb:g}}}\n" for part in parts)
    bare = re.sub(rf"^{re.escape(HEAD)}(  .*\n)+", "", profile, flags=re.MULTILINE)
    return re.sub(
        r"^plan:.*\n(  .*\n)*", lambda plan: plan[0] + HEAD + sizes, bare, count=1, flags=re.MULTILINE
    )


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.yaml")):
        path.write_text(with_sizes(path.read_text(encoding="utf-8")), encoding="utf-8")
