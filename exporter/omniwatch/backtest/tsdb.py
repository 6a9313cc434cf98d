"""A real Prometheus over a past that promtool wrote: no scrapes, no rules of its own, only answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil, floor
from pathlib import Path
from typing import Any

from omniwatch.backtest.errors import BacktestError
from omniwatch.backtest.scrapes import END
from omniwatch.backtest.states import Answer
from omniwatch.stack import Service, StackError, free_port

BLOCK_S = 7200
"""promtool makes a block of each two hours and reads its whole input for each: it is given two hours at a time."""
STEPS_MAX = 10_000
"""Of one query; Prometheus refuses more than 11,000."""
TIMEOUT_S = 300.0
RETENTION = "200y"


def tool(name: str) -> str:
    """Find an installed program. Raises BacktestError."""
    found = shutil.which(name)
    if found is None:
        raise BacktestError(f"{name} is not installed: a backtest asks the real Prometheus")
    return found


def check_rules(files: Sequence[Path]) -> None:
    """Let promtool read rule files. Raises BacktestError with its words."""
    done = subprocess.run(
        [tool("promtool"), "check", "rules", "--lint=none", *map(str, files)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = [line for line in words if line not in ("FAILED:", "FAILED")]
        told = said or words or [f"promtool: exit code {done.returncode}"]
        # Of a YAML error the reason has a line of its own.
        raise BacktestError(" ".join(told[: 2 if told[0].endswith(":") else 1]))


def evaluations(start_t: float, end_t: float, interval_s: float) -> list[float]:
    """Return the whole multiples of an interval in a time, to the millisecond."""
    first, last = ceil(start_t / interval_s), floor(end_t / interval_s)
    return [round(number * interval_s, 3) for number in range(first, last + 1)]


class Tsdb:
    """A Prometheus in `directory` that sees a series at an evaluation only if the last scrape, at most `scrape_s` ago,
    showed it, and takes subqueries without a step at each `evaluation_s`. `with` starts it and ends it; `fill` comes before.
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
        self._service: Service | None = None

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
        self._service = Service("prometheus", argv, self._directory, f"http://{address}")
        try:
            self._service.await_ready("/-/ready")
        except StackError as error:
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

    def answers(self, expression: str, times: Sequence[float]) -> list[Answer]:
        """Return what an expression was at evaluations that are evenly apart.

        Raises BacktestError with Prometheus' words where it refuses.
        """
        points: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        for first in range(0, len(times), STEPS_MAX):
            some = times[first : first + STEPS_MAX]
            step = some[1] - some[0] if len(some) > 1 else 1.0
            fields = {"query": expression, "start": some[0], "end": some[-1], "step": round(step, 3)}
            data = self._ask("query_range", fields)
            for one in data["result"]:
                values = [(float(t), float(value)) for t, value in one["values"]]
                points.setdefault(tuple(sorted(one["metric"].items())), []).extend(values)
        return [Answer(dict(labels), values) for labels, values in points.items()]

    def _ask(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        assert self._service is not None
        request = urllib.request.Request(
            f"{self._service.url}/api/v1/{name}", urllib.parse.urlencode(fields).encode()
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise BacktestError(_reason(error)) from error
        except OSError as error:
            words = getattr(error, "reason", None) or error
            raise BacktestError(f"prometheus: {words}: {self._service.last_words()}") from error
        return data


def _by_block(scrapes: Iterable[tuple[float, str]]) -> Iterator[Iterator[str]]:
    """Group the texts by the block they belong in; each group is read before the next."""
    for _, group in groupby(scrapes, lambda scrape: scrape[0] // BLOCK_S):
        yield (text for _, text in group)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return " ".join(str(json.load(error)["error"]).split())
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code} {error.reason}"
