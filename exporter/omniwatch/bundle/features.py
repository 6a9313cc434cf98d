"""What the installed tools can do. Each is asked once a run, by its help or by a small file that only a newer one reads."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ASK_TIMEOUT_S = 20.0


class Feature(NamedTuple):
    """Something that only a newer tool can do. It can where its answer has `word`, or, without one, where it takes `file`."""

    tool: str
    lacks: str
    """What a tool without it is told to lack, and the least version that has it."""
    command: tuple[str, ...]
    word: str = ""
    file: str = ""
    sign: str = ""
    """What a file contains that needs it; "" where its name says so."""


_HELP_RULES = ("help", "check", "rules")
LINT = Feature("promtool", "this promtool has no lint", _HELP_RULES, "--lint")
LINT_FATAL = Feature("promtool", "this promtool has no --lint-fatal", _HELP_RULES, "--lint-fatal")
AGENT = Feature(
    "promtool",
    "an agent of Prometheus is at least 2.32; on an older one set fleet.agent: vmagent",
    ("help", "check", "config"),
    "--agent",
)
_CENTRES = "a centre's Prometheus is at least 2.39, as Debian 12 has it, and this one is older; VictoriaMetrics needs none"
OUT_OF_ORDER = Feature(
    "promtool",
    _CENTRES,
    ("check", "config"),
    file="storage: {tsdb: {out_of_order_time_window: 1h}}",
)
NEGATIVE_OFFSET = Feature(
    "promtool",
    _CENTRES,
    ("test", "rules"),
    file="tests: [{promql_expr_test: [{expr: up offset -1m, eval_time: 1m, exp_samples: []}]}]",
)
_NO_SECRET_FILE = (
    "{} is read by an Alertmanager of at least 0.25, and this one is older: put upstream's alertmanager and amtool into "
    "/usr/local/bin (docs/paging.md)"
)
PAGERDUTY_KEY_FILE = Feature(
    "amtool",
    _NO_SECRET_FILE.format("pagerduty_routing_key_file"),
    ("check-config",),
    file="route: {receiver: a}\nreceivers: [{name: a, pagerduty_configs: [{routing_key_file: /a}]}]",
    sign="routing_key_file: ",
)
MAIL_PASSWORD_FILE = Feature(
    "amtool",
    _NO_SECRET_FILE.format("mail.password_file"),
    ("check-config",),
    file="global: {smtp_auth_password_file: /a}\nroute: {receiver: a}\nreceivers: [{name: a}]",
    sign="smtp_auth_password_file: ",
)
AGENT_MODE = Feature(
    "prometheus", "no agent mode, which is of Prometheus 2.32", ("--help",), "--storage.agent.path"
)
OVERLAPPING = Feature(
    "prometheus",
    "no --storage.tsdb.allow-overlapping-blocks",
    ("--help",),
    "--storage.tsdb.allow-overlapping-blocks",
)


class Tools:
    """The installed tools, found by `find`. What they answer is remembered."""

    def __init__(self, find: Callable[[str], str | None]) -> None:
        self.find = find
        self._answers: dict[tuple[str, ...], tuple[int, str] | None] = {}
        self._lock = threading.Lock()

    def knows(self, feature: Feature) -> bool:
        """Whether a tool has a feature. One that is absent or gives no answer is taken to: its use shows what is wrong."""
        program = self.find(feature.tool)
        if program is None:
            return True
        key = (program, *feature.command, feature.file)
        with self._lock:
            if key not in self._answers:
                self._answers[key] = _ask(program, feature)
            answer = self._answers[key]
        return answer is None or (feature.word in answer[1] if feature.word else answer[0] == 0)


def _ask(program: str, feature: Feature) -> tuple[int, str] | None:
    """Return a tool's exit code and words; None where it cannot be run."""
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        command = [program, *feature.command]
        if feature.file:
            asked = Path(directory, "asked.yaml")
            asked.write_text(f"{feature.file}\n", encoding="utf-8")
            command.append(str(asked))
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, cwd=directory, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return done.returncode, done.stdout + done.stderr
