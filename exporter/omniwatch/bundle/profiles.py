"""How a model server is started: profiles in deploy/profiles/, their memory budgets, and flags nobody knows."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from omniwatch.bundle import data

FOLDER = "deploy/profiles"
SYSTEM_GB = 4.0
"""Kept for the operating system, the sidecar and everything else that is not the model server."""

ASK_S = 180.0
"""How long vLLM may take to print its help: it imports most of itself for that."""

_INSTEAD = {
    "--disable-talker": ("--deploy-config", "a deploy file without the talker, or the request's modalities"),
    "--moe-expert-slice": ("--enable-expert-parallel", "experts cannot be left out at start-up"),
    "VLLM_MOE_EXPERT_SLICE": ("--enable-expert-parallel", "experts cannot be left out at start-up"),
    "VLLM_QUANT": ("--quantization", "the bits stand in the checkpoint's own configuration"),
    "--cache-ratio": ("--kv-cache-dtype", "or a smaller --max-model-len"),
}
"""Flags and variables of published recipes that no vLLM has, and what comes closest in meaning."""


class ProfileError(ValueError):
    """A profile that does not exist, does not hold or does not fit; the message is one line."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is in memory, or was before a reduction, and its size in GB (10^9 bytes)."""

    what: str
    gb: Annotated[float, Meta(gt=0)]


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to start the model server.

    `command` holds the lines of ExecStart as they stand in the unit, the first the program. `memory` is what is loaded
    at the same time; `reduced_from` how the sizes came about; `claimed` the share of the device's memory that the server
    takes at start, whether it needs it or not (vLLM's --gpu-memory-utilization, summed over stages). `service` and
    `remarks` are further directives and comments of the unit, as they are.
    """

    name: str = ""
    summary: str
    runs: Literal["process", "container"]
    command: Annotated[list[str], Meta(min_length=1)]
    environment: dict[str, str] = {}
    memory: Annotated[list[Part], Meta(min_length=1)]
    reduced_from: list[Part] = []
    claimed: Annotated[float, Meta(ge=0, le=1)] = 0
    service: list[str] = []
    remarks: list[str] = []

    def needs_gb(self, device_gb: float) -> float:
        """What the server takes on a device of this size."""
        return max(sum(part.gb for part in self.memory), self.claimed * device_gb)

    def words(self) -> list[str]:
        """The command line as its program gets it."""
        return shlex.split(" ".join(self.command))


def available(root: Path | None = None) -> list[str]:
    """Name the profiles there are."""
    return sorted(path.stem for path in (_root(root) / FOLDER).glob("*.yaml"))


def load(name: str, root: Path | None = None) -> Profile:
    """Read one profile. Raises ProfileError."""
    known = available(root)
    if name not in known:
        raise ProfileError(f'no profile "{name}"; there are {", ".join(known)}')
    path = _root(root) / FOLDER / f"{name}.yaml"
    try:
        profile = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), Profile)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise ProfileError(f"{path.name}: {' '.join(str(error).split())}") from error
    return msgspec.structs.replace(profile, name=name)


def fitting(name: str, device_gb: float, root: Path | None = None) -> Profile:
    """Read a profile that a device with so much memory can hold. Raises ProfileError."""
    profile = load(name, root)
    needs = profile.needs_gb(device_gb)
    if needs + SYSTEM_GB > device_gb:
        parts = " + ".join(f"{part.gb:g} ({part.what})" for part in profile.memory)
        raise ProfileError(
            f"profile {name} does not fit: it takes {needs:.0f} GB ({parts}"
            + (f", claims {profile.claimed:.0%} of the device" if profile.claimed else "")
            + f") beside {SYSTEM_GB:g} GB for the system, and the device has {device_gb:.0f} GB"
        )
    return profile


def known_flags(help_text: str) -> set[str]:
    """Return every long flag that a program's help text mentions at the start of an entry.

    Made for the output of `vllm-omni serve --omni --help=all`.
    """
    found: set[str] = set()
    for line in help_text.splitlines():
        entry = re.match(r"\s*(-[-\w.]+(?:[ =][^,\s]+)?(?:,\s+-[-\w.]+(?:[ =][^,\s]+)?)*)", line)
        if entry:
            found.update(re.findall(r"--[a-z][\w.-]*", entry[1]))
    return found


def ask(program: Path) -> tuple[set[str], list[str]]:
    """Ask an installed vllm-omni for the flags it knows, and the Python beside it for the variables. Takes some 15 s.

    Raises ProfileError.
    """
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1", "VLLM_LOGGING_LEVEL": "ERROR"}

    def output(*command: str) -> str:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=ASK_S, check=False, env=environment
            )
        except subprocess.TimeoutExpired as error:
            raise ProfileError(f"{command[0]}: no answer within {ASK_S:.0f} s") from error
        except OSError as error:
            raise ProfileError(f"{command[0]}: {error.strerror}") from error
        return done.stdout

    flags = known_flags(output(str(program), "serve", "--omni", "--help=all"))
    if not flags:
        raise ProfileError(f"{program}: `serve --omni --help=all` names no flags; is it vllm-omni?")
    python = program.parent / "python"
    variables = "import vllm.envs; print(*vllm.envs.environment_variables)"
    return flags, output(str(python), "-c", variables).split() if python.exists() else []


def unknown(profile: Profile, flags: Iterable[str], variables: Iterable[str] = ()) -> list[str]:
    """Say of every flag, and every VLLM_ variable, that the installed vLLM does not know what comes closest to it.

    `flags` and `variables` are what it does know; without variables those are not looked at.
    """
    known, settable = set(flags), set(variables)
    words = profile.words()
    # What stands before an image's name, or before `serve`, is another program's business.
    used = [word.partition("=")[0] for word in _server_words(profile, words) if word.startswith("--")]
    named = dict(pair.split("=", 1) for pair in words if re.match(r"VLLM_[A-Z_]+=", pair))
    strange = [flag for flag in used if flag not in known]
    if settable:
        strange += [
            name
            for name in (*profile.environment, *named)
            if name.startswith("VLLM_") and name not in settable
        ]
    return [f"{flag}: the installed vLLM does not know it; {_advice(flag, known)}" for flag in strange]


def _server_words(profile: Profile, words: list[str]) -> list[str]:
    if profile.runs == "process":
        return words[1:]
    image = next(at for at, word in enumerate(words) if re.fullmatch(r"[\w./-]+:[\w.-]+", word) and at > 1)
    return words[image + 1 :]


def _advice(flag: str, known: set[str]) -> str:
    instead, why = _INSTEAD.get(flag, ("", ""))
    if instead in known:
        return f"the closest is {instead} ({why})"
    close = difflib.get_close_matches(flag, known, n=1, cutoff=0)
    return f"the closest is {close[0]}" if close else "it knows none"


def stage_shares(profile: Profile) -> dict[str, float]:
    """Return the memory share of each stage that --stage-overrides states."""
    words = profile.words()
    if "--stage-overrides" not in words:
        return {}
    stages = json.loads(words[words.index("--stage-overrides") + 1])
    return {stage: float(values["gpu_memory_utilization"]) for stage, values in stages.items()}


def _root(root: Path | None) -> Path:
    return data.root() if root is None else root
