"""Read the profiles in deploy/profiles: the model server's command, its memory, and flags that vLLM does not know."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from omniwatch.bundle import data
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.system.closest import closest
from omniwatch.system.errors import UserError

FOLDER = "deploy/profiles"
SYSTEM_BYTES = 4_000_000_000
"""Assumed need of Linux, the sidecar (below 0.1 GB) and everything else that is not the model server."""
SYSTEM_GB = SYSTEM_BYTES / 1e9
VLLM_OMNI = "/opt/vllm-omni/bin/vllm-omni"
"""Where the profiles expect vLLM-Omni to be installed."""

TAP_FLAGS = "--middleware omniwatch.tap.Tap"
TAP_FOLDER = "/opt/omniwatch/tap"
DROPIN = "50-omniwatch-tap.conf"
"""Adds the tap to a server whose profile runs none."""

KEEP_ALIVE_S = 75
"""For how long the server keeps a connection on which nothing is asked (vLLM: 5). Our clients ask something each 15 s."""

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


class ProfileError(UserError):
    """A profile that does not exist, does not hold or does not fit."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is in memory, or was before a reduction, and its size in GB (10^9 bytes)."""

    what: str
    gb: Annotated[float, Meta(gt=0)]


class Planned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a profile runs of the released model, in the terms of `omniwatch plan`, which computes its size."""

    quantization: list[str] = []
    talker: bool = True
    streams: Annotated[int, Meta(ge=1)] = 1
    max_model_len: Annotated[int, Meta(ge=1)] = 32768
    kv_cache_dtype: str = "bf16"


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to start the model server.

    `command` holds the lines of ExecStart as they stand in the unit, the first the program. `plan` says what runs, and
    `computed` what that takes: `make profiles` writes it. Only a `published` profile states `memory` (what is loaded at the
    same time) and `reduced_from` (how the sizes came about): as published. `cannot` says why there is no plan. `claimed` is
    the share of the device's memory that the server takes at start, whether it needs it or not (vLLM's
    --gpu-memory-utilization, summed over stages). `service` and `remarks` are further directives and comments of the unit,
    as they are.
    """

    name: str = ""
    summary: str
    runs: Literal["process", "container"]
    command: Annotated[list[str], Meta(min_length=1)]
    environment: dict[str, str] = {}
    published: bool = False
    plan: Planned | None = None
    computed: list[Part] = []
    cannot: str = ""
    memory: list[Part] = []
    reduced_from: list[Part] = []
    claimed: Annotated[float, Meta(ge=0, le=1)] = 0
    service: list[str] = []
    remarks: list[str] = []

    @property
    def parts(self) -> list[Part]:
        """What is loaded at the same time: as published, else as computed."""
        return self.memory or self.computed

    def stated_gb(self) -> float:
        """What a published profile says that it takes; 0 for others."""
        return sum(part.gb for part in self.memory) if self.published else 0.0

    def computed_gb(self) -> float:
        """What arithmetic says that it takes; 0 where there is nothing to compute."""
        return sum(part.gb for part in self.computed)

    def needs_gb(self, device_gb: float) -> float:
        """What the server takes on a device of this size: the largest of stated, computed and claimed."""
        return max(self.stated_gb(), self.computed_gb(), self.claimed * device_gb)

    @property
    def keep_alive_s(self) -> int:
        """For how long the server keeps a connection on which nothing is asked."""
        return KEEP_ALIVE_S

    @property
    def has_tap(self) -> bool:
        """Tell whether the server that it starts writes events."""
        return TAP_FLAGS in " ".join(self.command)

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
        profile = msgspec.convert(load_yaml(path.read_text(encoding="utf-8")), Profile)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise ProfileError(f"{path.name}: {' '.join(str(error).split())}") from error
    if profile.published != bool(profile.memory):
        raise ProfileError(f"{path.name}: memory: stated by published profiles, and only by them")
    if (profile.plan is None) != bool(profile.cannot):
        raise ProfileError(f"{path.name}: either plan, or cannot, which says why there is none")
    if (profile.plan is None) != (not profile.computed):
        raise ProfileError(f"{path.name}: plan and computed: either both, or neither")
    return msgspec.structs.replace(profile, name=name)


def fitting(name: str, device_gb: float, root: Path | None = None) -> Profile:
    """Read a profile that a device with so much memory can hold. Raises ProfileError."""
    profile = load(name, root)
    if trouble := too_large(profile, device_gb):
        raise ProfileError(trouble)
    return profile


def too_large(profile: Profile, device_gb: float) -> str:
    """Say why a device with so much memory cannot hold a profile; "" where it can."""
    needs, given = profile.needs_gb(device_gb), profile.claimed * device_gb
    short = not profile.published and 0 < given < profile.computed_gb()
    if needs + SYSTEM_GB <= device_gb and not short:
        return ""
    parts = " + ".join(f"{part.gb:g} ({part.what})" for part in profile.parts)
    return (
        f"profile {profile.name} does not fit: it takes {needs:.0f} GB ({parts}"
        + (f", claims {profile.claimed:.0%} of the device, {given:.0f} GB" if profile.claimed else "")
        + f") beside {SYSTEM_GB:g} GB for the system, and the device has {device_gb:.0f} GB"
    )


def remarks(profile: Profile, device_gb: float, *, with_tap: bool = False) -> list[str]:
    """Say beside a published profile's claims what arithmetic says, and that it runs no tap. None for others."""
    if not profile.published:
        return []
    found = []
    if profile.cannot:
        found.append(f"published as {profile.stated_gb():g} GB, which cannot be computed: {profile.cannot}")
    else:
        found.append(f"published as {profile.stated_gb():g} GB; computed {profile.computed_gb():.1f} GB")
    if profile.claimed:
        found[0] += f"; vLLM takes {profile.claimed:.0%} of the device, {profile.claimed * device_gb:.0f} GB"
    if not profile.has_tap and not with_tap:
        found.append("runs no tap, so there are no curves: install --with-tap adds it")
    return [f"profile {profile.name}: {line}" for line in found]


def tap_dropin(profile: Profile, ear: str) -> str:
    """Write the drop-in that adds the tap: the published command line, and the middleware behind it.

    `ear` is the setting `tap.ear`, which a container has from here and a process from its unit. With the tap comes how long the
    server keeps a connection on which nothing is asked: a client keeps one for its next question.
    """
    lines = list(profile.command)
    keeping = f"VLLM_HTTP_TIMEOUT_KEEP_ALIVE={KEEP_ALIVE_S}"
    environment = f'Environment="PYTHONPATH={TAP_FOLDER}"\nEnvironment="{keeping}"\n'
    if profile.runs == "container":
        words = profile.words()
        image = words[-len(_server_words(profile, words)) - 1]
        at = next(index for index, line in enumerate(lines) if line.strip() == image)
        asking = "" if ear == "auto" else f" -e OMNIWATCH_EAR={ear}"
        lines.insert(at, f"-v {TAP_FOLDER}:{TAP_FOLDER}:ro -e PYTHONPATH={TAP_FOLDER} -e {keeping}{asking}")
        environment = ""
    command = " \\\n  ".join([*lines, TAP_FLAGS])
    return (
        "# The unit's own command line, with the tap: without it there are no events, and so no curves.\n"
        f"[Service]\n{environment}ExecStart=\nExecStart={command}\n"
    )


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
    strange = unknown_words(_server_words(profile, words), known)
    named = dict(pair.split("=", 1) for pair in words if re.match(r"VLLM_[A-Z_]+=", pair))
    if settable:
        strange += [
            _unknown(name, known)
            for name in (*profile.environment, *named)
            if name.startswith("VLLM_") and name not in settable
        ]
    return strange


def unknown_words(words: Iterable[str], flags: Iterable[str]) -> list[str]:
    """Say of every flag among the words of a command that is not one of `flags` what comes closest to it."""
    known = set(flags)
    used = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [_unknown(flag, known) for flag in used if flag not in known]


def _unknown(flag: str, known: set[str]) -> str:
    return f"{flag}: the installed vLLM does not know it; {_advice(flag, known)}"


def program(name: str | None) -> Path | None:
    """Find a program that is named as a shell would, without a slash in PATH; without a name, an installed vllm-omni."""
    if name is None:
        found = shutil.which("vllm-omni") or (VLLM_OMNI if os.access(VLLM_OMNI, os.X_OK) else None)
        return Path(found) if found else None
    return Path(name).absolute() if "/" in name else Path(shutil.which(name) or name)


def _server_words(profile: Profile, words: list[str]) -> list[str]:
    if profile.runs == "process":
        return words[1:]
    image = next(
        at for at, word in enumerate(words) if re.fullmatch(r"[a-z][\w./-]*:[\w.-]+", word) and at > 1
    )
    return words[image + 1 :]


def _advice(flag: str, known: set[str]) -> str:
    instead, why = _INSTEAD.get(flag, ("", ""))
    if instead in known:
        return f"the closest is {instead} ({why})"
    close = closest(flag, sorted(known))
    return f"the closest is {close}" if close else "it knows none like it"


def stage_shares(profile: Profile) -> dict[str, float]:
    """Return the memory share of each stage that --stage-overrides states."""
    words = profile.words()
    if "--stage-overrides" not in words:
        return {}
    stages = json.loads(words[words.index("--stage-overrides") + 1])
    return {stage: float(values["gpu_memory_utilization"]) for stage, values in stages.items()}


def _root(root: Path | None) -> Path:
    return data.root() if root is None else root
