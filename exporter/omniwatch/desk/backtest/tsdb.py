"""Start a Prometheus on blocks that promtool wrote. It scrapes nothing, has no rules, and only answers queries."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil, floor
from pathlib import Path

import msgspec

from omniwatch.bundle import features
from omniwatch.bundle.features import Tools
from omniwatch.centre import prometheus_api
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.scrapes import END
from omniwatch.desk.backtest.states import Series
from omniwatch.desk.child_process import ChildError, ChildProcess, free_port

BLOCK_S = 7200
"""Seconds of one block. promtool reads its whole input for each block that it makes, so it is given one block at a time."""
STEPS_MAX = 10_000
"""Most steps of one query; Prometheus refuses more than 11,000."""
TIMEOUT_S = 300.0
RETENTION = "200y"


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


def tool(name: str) -> str:
    """Find an installed program. Raises BacktestError."""
    found = shutil.which(name)
    if found is None:
        raise BacktestError(f"{name} is not installed: a backtest asks the real Prometheus")
    return found


def check_rules(files: Sequence[Path]) -> None:
    """Let promtool read rule files. Raises BacktestError with its words."""
    promtool = tool("promtool")
    unlinted = ["--lint=none"] if Tools(shutil.which).knows(features.LINT) else []
    done = subprocess.run(
        [promtool, "check", "rules", *unlinted, *map(str, files)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = [line for line in words if line not in ("FAILED:", "FAILED")]
        reasons = said or words or [f"promtool: exit code {done.returncode}"]
        # Of a YAML error the reason has a line of its own.
        raise BacktestError(" ".join(reasons[: 2 if reasons[0].endswith(":") else 1]))


def evaluations(start_t: float, end_t: float, interval_s: float) -> list[float]:
    """Return the whole multiples of an interval in a time, to the millisecond."""
    first, last = ceil(start_t / interval_s), floor(end_t / interval_s)
    return [round(number * interval_s, 3) for number in range(first, last + 1)]


class Tsdb:
    """A Prometheus in `directory`. Call `fill`, then `with` starts it and ends it.

    It sees a series at an evaluation only if the last scrape, at most `scrape_s` ago, had it. It evaluates subqueries without
    a step every `evaluation_s`.
    """

    def __init__(self, directory: Path, scrape_s: float, evaluation_s: float) -> None:
        self._directory = directory
        self._data = directory / "tsdb"
        self._data.mkdir(parents=True)
        self._config = f"global: {{evaluation_interval: {round(evaluation_s * 1000)}ms}}\n"
        # No stale markers can be written: what the last scrape did not have must be too old to be seen. Samples are at
        # multiples of the interval, and a sample of exactly the lookback's age still counts.
        self._lookback = f"{round(scrape_s * 1000) - 1}ms"
        self._promtool, self._prometheus = tool("promtool"), tool("prometheus")
        # An older one does not start on blocks that overlap without this; a newer one needs and knows no such flag.
        self._may_overlap = Tools(shutil.which).knows(features.OVERLAPPING)
        self._service: ChildProcess | None = None

    def fill(self, scrapes: Iterable[tuple[float, str]]) -> None:
        """Write scrapes, in order, as blocks. Raises BacktestError, OSError."""
        part = self._directory / "part.om"
        for texts in _by_block(scrapes):
            with part.open("w", encoding="utf-8") as file:
                file.writelines(texts)
                file.write(END)
            done = subprocess.run(
                [self._promtool, "tsdb", "create-blocks-from", "openmetrics", "-q", part, self._data],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            part.unlink()
            if done.returncode:
                raise BacktestError(f"promtool: {' '.join((done.stderr or done.stdout).split())}")

    def __enter__(self) -> Tsdb:
        config = self._directory / "prometheus.yml"
        config.write_text(self._config, encoding="utf-8")
        address = f"127.0.0.1:{free_port()}"
        flags = {
            "config.file": config,
            "storage.tsdb.path": self._data,
            "storage.tsdb.retention.time": RETENTION,
            "query.lookback-delta": self._lookback,
            "web.listen-address": address,
            "log.level": "warn",
        }
        argv = [self._prometheus, *(f"--{flag}={value}" for flag, value in flags.items())]
        if self._may_overlap:
            argv.append("--storage.tsdb.allow-overlapping-blocks")
        self._service = ChildProcess("prometheus", argv, self._directory, f"http://{address}")
        try:
            self._service.await_ready("/-/ready")
        except ChildError as error:
            self._stop()
            raise BacktestError(str(error)) from error
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    @property
    def url(self) -> str:
        """Where it answers, while it runs."""
        return "" if self._service is None else self._service.url

    def _stop(self) -> None:
        if self._service is not None:
            self._service.stop()
            self._service = None

    def answers(self, expression: str, times: Sequence[float]) -> list[Series]:
        """Return what an expression was at evaluations that are evenly apart.

        Raises BacktestError with Prometheus' words where it refuses.
        """
        points: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        for first in range(0, len(times), STEPS_MAX):
            some = times[first : first + STEPS_MAX]
            step = some[1] - some[0] if len(some) > 1 else 1.0
            for one in self._ask(
                {"query": expression, "start": some[0], "end": some[-1], "step": round(step, 3)}
            ):
                values = [(t, float(value)) for t, value in one.values]
                points.setdefault(tuple(sorted(one.metric.items())), []).extend(values)
        return [Series(dict(labels), values) for labels, values in points.items()]

    def _ask(self, fields: dict[str, str | float]) -> list[_Series]:
        assert self._service is not None
        try:
            data = prometheus_api.ask(self._service.url, "query_range", fields, timeout_s=TIMEOUT_S)
        except prometheus_api.ApiError as error:
            if error.code is None:
                raise BacktestError(f"prometheus: {error}: {self._service.last_words()}") from error
            raise BacktestError(str(error)) from error
        return msgspec.json.decode(data.result, type=list[_Series])


def _by_block(scrapes: Iterable[tuple[float, str]]) -> Iterator[Iterator[str]]:
    """Group the texts by the block they belong in; each group is read before the next."""
    for _, group in groupby(scrapes, lambda scrape: scrape[0] // BLOCK_S):
        yield (text for _, text in group)
