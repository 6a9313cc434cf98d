"""Base and overlay as `kubectl kustomize` builds them, and the command that writes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from helpers.clusters import EVERY_SETTINGS, FULL
from omniwatch.bundle import render
from omniwatch.cli import main
from omniwatch.desk.kubernetes import files
from omniwatch.settings import Settings

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE):
    """Reads a plain = as text, as YAML 1.2 does."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)


def kubectl(*arguments: str) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here: Ubuntu's archive has none")
    done = subprocess.run(["kubectl", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def components() -> None:
    """Skip where kustomize is older than components are."""
    version = json.loads(kubectl("version", "--client", "--output=json"))["clientVersion"]
    if int(re.findall(r"\d+", version["gitVersion"])[1]) < 21:
        pytest.skip(f"kubectl {version['gitVersion']} knows no components; 1.21 does")


def built(directory: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(kubectl("kustomize", str(directory)), Loader=_Loader))


@pytest.mark.programs
@pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)
def test_kustomize_builds_the_base(tmp_path: Path, settings: Settings) -> None:
    rendered = files.render_all(settings)
    render.write(rendered, tmp_path)
    base = built(tmp_path / "base")
    assert len(base) == len([path for path in rendered if path.parts[0] == "base"]) - 1


@pytest.mark.programs
@pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)
def test_kustomize_builds_the_overlay(tmp_path: Path, settings: Settings) -> None:
    components()
    render.write(files.render_all(settings), tmp_path)
    overlay = built(tmp_path / "overlays/example")
    (server,) = [one for one in overlay if one["kind"] == "Deployment"]
    kubernetes_validate.validate(server, "1.37", strict=True)
    images = {
        container["image"]
        for one in overlay
        if one["kind"] in ("Deployment", "DaemonSet")
        for part in ("containers", "initContainers")
        for container in one["spec"]["template"]["spec"].get(part, ())
    }
    assert images == {"vllm/vllm-omni:v0.30.0", "registry.example/omniwatch:0.1.0"}


@pytest.mark.programs
def test_the_patch_adds_tap_and_sidecar_to_a_server_that_was_there(tmp_path: Path) -> None:
    components()
    render.write(files.render_all(EVERY_SETTINGS["full"]), tmp_path)
    server = tmp_path / "overlays/example/server.yaml"
    whole = yaml.safe_load(server.read_text())
    pod = whole["spec"]["template"]["spec"]
    pod["containers"].append({"name": "proxy", "image": "proxy:1"})
    pod["containers"][0]["env"] = [{"name": "HF_HOME", "value": "/cache"}]
    pod["volumes"] = [{"name": "cache", "emptyDir": {}}]
    server.write_text(yaml.safe_dump(whole))
    (found,) = [one for one in built(tmp_path / "overlays/example") if one["kind"] == "Deployment"]
    spec = found["spec"]["template"]["spec"]
    vllm, proxy = sorted(spec["containers"], key=lambda one: one["name"], reverse=True)
    assert proxy == {"name": "proxy", "image": "proxy:1"}
    assert {one["name"] for one in vllm["env"]} == {
        "HF_HOME",
        "PYTHONPATH",
        "OMNIWATCH_EVENTS",
        "OMNIWATCH_EAR",
    }
    assert [one["name"] for one in spec["initContainers"]] == ["omniwatch-tap", "omniwatch"]
    assert spec["initContainers"][1]["restartPolicy"] == "Always"
    volumes = {one["name"] for one in spec["volumes"]}
    for container in (*spec["containers"], *spec["initContainers"]):
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
    assert (
        found["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "omniwatch-sidecar"
    )


def omniwatch(*arguments: str | Path) -> Any:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.slow
@pytest.mark.usefixtures("no_tools")
def test_the_command_writes_shows_and_checks(tmp_path: Path) -> None:
    config, out = tmp_path / "omniwatch.yaml", tmp_path / "out"
    config.write_text(FULL)
    options = ("render", "--kubernetes", "--config.file", config, "--out", out)
    dry = omniwatch(*options, "--dry-run")
    assert (dry.exit_code, out.exists()) == (0, False)
    assert f"would write: {out}/base/kustomization.yaml\n" in dry.output
    assert omniwatch(*options).exit_code == 0
    assert omniwatch(*options, "--diff").stdout == ""
    assert omniwatch("check", out).exit_code == 0
    config.write_text(FULL.replace("scrape_interval_s: 2", "scrape_interval_s: 3"))
    diff = omniwatch(*options, "--diff")
    assert diff.exit_code == 1
    assert {"-  - interval: 2s", "+  - interval: 3s"} <= set(diff.stdout.splitlines())
    (out / "base/service.yaml").write_text("kind: [")
    assert omniwatch("check", out).exit_code == 1


@pytest.mark.usefixtures("no_tools")
def test_one_file_is_printed_by_its_name() -> None:
    done = omniwatch("render", "--kubernetes", "service.yaml")
    assert (done.exit_code, yaml.safe_load(done.stdout)["kind"]) == (0, "Service")
    assert "nobody is told of a page" in done.stderr
    missing = omniwatch("render", "--kubernetes", "servise.yaml")
    assert missing.exit_code == 2
    assert missing.stderr.endswith('Error: no file "servise.yaml"; the closest is "service.yaml"\n')
