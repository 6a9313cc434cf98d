"""A real sidecar with a simulated server, for a page to look at."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from helpers.waiting import wait_until
from helpers.web_client import get
from omniwatch.desk.child_process import ChildProcess, free_port

OMNIWATCH = (sys.executable, "-m", "omniwatch")


class Sidecar:
    """A sidecar at `url`, and the server of a scenario that writes its events; both end with `with`."""

    def __init__(
        self, directory: Path, *simulated: str, settings: str = "", web_config: Path | None = None
    ) -> None:
        self.directory = directory
        self.events = directory / "events.jsonl"
        self.address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}"
        config = directory / "omniwatch.yaml"
        config.write_text(settings)
        command = [
            *(*OMNIWATCH, "exporter", f"tail:{self.events}", f"--config.file={config}"),
            *(f"--web.listen-address={self.address}", f"--state-dir={directory / 'state'}"),
        ]
        (directory / "state").mkdir()
        if web_config is not None:
            command.append(f"--web.config.file={web_config}")
        self._server = None
        if simulated:
            words = [*OMNIWATCH, "simulate", "--quiet", f"--out={self.events}", *simulated]
            self._server = ChildProcess("server", words, directory)
        self._sidecar = ChildProcess("sidecar", command, directory, self.url)

    def __enter__(self) -> Sidecar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self._sidecar, self._server):
            if one is not None:
                one.stop()

    def await_ready(self) -> None:
        """Wait until it answers, be it that a login is needed."""
        wait_until(self._answers, what="the sidecar to answer")

    def _answers(self) -> bool:
        try:
            return get(self.address, "/-/healthy").status in (200, 401)
        except OSError:
            return False

    def kill(self) -> None:
        self._sidecar.process.kill()
        self._sidecar.process.wait()

    def start(self) -> None:
        """Start it anew, at the same address."""
        self._sidecar.start()
        self.await_ready()

    def stop_server(self) -> None:
        assert self._server is not None
        self._server.stop()

    def samples(self) -> dict[str, float]:
        """What /metrics says now, by series as written there."""
        text = get(self.address).body.decode()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {series: float(value) for series, value in lines}
