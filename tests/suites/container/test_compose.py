"""The compose file: every profile is read, and the simulated server, sidecar, Prometheus and Alertmanager come up, and a page arrives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.paths import CLONE
from helpers.waiting import wait_until
from omniwatch import __version__
from suites.container.composition import FILE, Compose, installed, make_images, network, on_one_network
from suites.container.conftest import Built

PROFILES = {
    "demo": {"render", "omniwatch", "prometheus", "alertmanager", "grafana", "simulated-server"},
    "server": {"render", "omniwatch", "prometheus", "alertmanager", "grafana"},
    "jetson": {f"jetson-{name}" for name in ("render", "omniwatch", "prometheus", "alertmanager", "grafana")},
}
UP = ["render", "omniwatch", "prometheus", "alertmanager", "simulated-server"]
UNITS = CLONE / "deploy/quadlet"
QUADLET = Path("/usr/libexec/podman/quadlet")
PUBLISHED = {name: image for image, name in re.findall(r"-(docker\.io/\w+/(\w+):[^}]+)", FILE.read_text())}
"""The images of others that the file names."""
LISTENER = """
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab") as file:
            file.write(body + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 9999), Hook).serve_forever()
"""


@pytest.fixture(scope="module")
def compose(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    directory = tmp_path_factory.mktemp("compose")
    (directory / "images").mkdir()
    images = make_images(built.engine, directory / "images")
    with network() as inside:
        yield Compose(installed(directory / "venv"), built.engine, images, inside)


def read(path: Path) -> ConfigParser:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign] -- a unit's keys have capitals
    unit.read(path)
    return unit


def services(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


@pytest.mark.parametrize("profile", PROFILES)
def test_every_service_of_a_profile_is_read(compose: Compose, profile: str) -> None:
    found = services(compose.run("--profile", profile, "config").stdout)
    assert {name for name, one in found.items() if profile in one["profiles"]} == PROFILES[profile]
    for name in PROFILES[profile]:
        image = found[name]["image"]
        assert image.startswith("localhost/") or re.search(r":v?\d+\.\d+\.\d+$", image), image
        assert all(port.startswith("127.0.0.1:") for port in found[name].get("ports", ()))
        assert (found[name].get("network_mode") == "host") == (profile == "jetson")


def test_the_images_are_of_this_version_and_no_secret_stands_in_the_file() -> None:
    text = FILE.read_text()
    ours = re.findall(r"localhost/omniwatch[a-z-]*:([0-9.]+)", text)
    assert set(ours) == {__version__}
    assert "PASSWORD: " not in text
    assert not (CLONE / "deploy/compose/grafana-password").exists()


def test_the_units_for_podman_start_what_the_file_does(compose: Compose) -> None:
    """By the images and the words after them, on a Jetson."""
    found = services(compose.run("--profile", "jetson", "config").stdout)
    units = {path.stem: read(path)["Container"] for path in UNITS.glob("*.container")}
    assert {name.removeprefix("omniwatch-") for name in units} == {
        name.removeprefix("jetson-") for name in PROFILES["jetson"]
    }
    for name, unit in units.items():
        one = found[f"jetson-{name.removeprefix('omniwatch-')}"]
        image = (
            one["image"]
            if "omniwatch" in one["image"]
            else PUBLISHED[Path(one["image"]).name.partition(":")[0]]
        )
        assert unit["Image"] == image
        assert unit.get("Exec", "").split() == one.get("command", [])


def test_quadlet_reads_the_units() -> None:
    if not QUADLET.exists():
        pytest.skip("no quadlet here: podman is older than 4.4")
    done = subprocess.run(
        [str(QUADLET), "-dryrun"],
        env={"QUADLET_UNIT_DIRS": str(UNITS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ExecStart=") == len(list(UNITS.iterdir()))


def test_a_page_of_the_simulated_servers_fault_arrives(compose: Compose, tmp_path: Path) -> None:
    told = tmp_path / "told.jsonl"
    settings = yaml.safe_load((FILE.parent / "omniwatch.yaml").read_text())
    settings["receivers"]["page_webhook_url"] = "http://127.0.0.1:9999/page"
    tmp_path.chmod(0o755)
    (tmp_path / "omniwatch.yaml").write_text(json.dumps(settings))
    given = compose._replace(
        environment={**compose.environment, "OMNIWATCH_SETTINGS": str(tmp_path / "omniwatch.yaml")}
    )
    files = (FILE, on_one_network(tmp_path / "here.yaml", UP))
    (tmp_path / "hook.py").write_text(LISTENER)
    with subprocess.Popen([*compose.inside, sys.executable, str(tmp_path / "hook.py"), str(told)]) as hook:
        try:
            given.run("--profile", "demo", "up", "--detach", *UP, files=files)
            pages = wait_until(lambda: told.exists() and told.read_text(), timeout=240, what="a page")
        finally:
            given.run("--profile", "demo", "down", "--volumes", files=files)
            hook.terminate()
    (alert, *_) = json.loads(pages.splitlines()[0])["alerts"]
    assert (alert["labels"]["device"], alert["labels"]["severity"]) == ("demo", "page")
