"""From this version's image to one of another number and back, on the same volume: counters and curves stay. State of a later
format is said in the log, and the program starts over.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.waiting import wait_until
from omniwatch import __version__
from omniwatch.desk.child_process import free_port
from suites.container.engine import Engine
from suites.release import state
from suites.release.clones import Released, build
from suites.release.conftest import NEWER, Newer


class Running(NamedTuple):
    """A sidecar in a container."""

    engine: Engine
    container: str
    port: int

    def metrics(self) -> dict[str, float]:
        """What it says, by name and labels; nothing while it does not answer."""
        with suppress(OSError):
            families = text_string_to_metric_families(self.get("/metrics"))
            return {
                f"{one.name}{json.dumps(one.labels)}": one.value
                for family in families
                for one in family.samples
            }
        return {}

    def feed(self) -> dict[str, Any]:
        """What its live page shows."""
        feed: dict[str, Any] = json.loads(self.get("/live.json"))
        return feed

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as page:
            return str(page.read().decode())

    def log(self) -> str:
        return self.engine.podman("logs", self.container).stderr

    def stop(self) -> None:
        self.engine.podman("stop", "--time=20", self.container)


@pytest.fixture(scope="module")
def both(released: Released, newer: Newer, images: Engine) -> Engine:
    """An engine with the images of both numbers."""
    images.load(released.file("omniwatch_*_amd64.image.tar.gz"))
    build(newer.clone, "deploy/container/build.sh", images)
    return images


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spool")
    folder.chmod(0o755)
    (folder / "events.jsonl").write_bytes(state.events())
    return folder


@contextmanager
def sidecar(engine: Engine, number: str, spool: Path) -> Iterator[Running]:
    port = free_port()
    mounts = [f"--volume={spool}:/run/omniwatch:ro", "--volume=upgraded:/var/lib/omniwatch", "--network=host"]
    command = [f"localhost/omniwatch:{number}", "exporter", f"--web.listen-address=127.0.0.1:{port}"]
    with engine.container("--read-only", *mounts, *command) as container:
        running = Running(engine, container, port)
        wait_until(running.metrics, what=f"the sidecar {number}")
        yield running


def folder(engine: Engine) -> Path:
    """Where the volume is on this machine."""
    shown = engine.podman("volume", "inspect", "upgraded", "--format={{.Mountpoint}}").stdout
    return Path(shown.strip())


def test_an_image_is_changed_for_a_newer_one_and_back(both: Engine, spool: Path) -> None:
    whole = (spool / "events.jsonl").read_bytes()
    with sidecar(both, __version__, spool) as running:
        before = wait_until(lambda: state.counted(running.metrics(), whole), what="the spool to be read")
        running.stop()
    state.put_history(folder(both))
    # A sidecar that starts over would count what the spool holds once more, to the same numbers.
    (spool / "events.jsonl").write_bytes(b"")
    for number in (NEWER, __version__):
        with sidecar(both, number, spool) as running:
            assert state.counters(running.metrics()) == before
            assert [name for name in running.metrics() if f'"version": "{number}"' in name]
            assert state.has_history(running.feed())
            running.stop()


def test_state_of_a_later_format_is_said_and_started_over(both: Engine, spool: Path) -> None:
    state.make_later(folder(both))
    with sidecar(both, __version__, spool) as running:
        assert set(state.counters(running.metrics()).values()) == {0}
        assert not state.has_history(running.feed())
        assert state.refused(running.log())
        running.stop()
    assert state.is_own(folder(both))
