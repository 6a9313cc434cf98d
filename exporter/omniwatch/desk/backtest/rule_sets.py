"""Load the rule sets that the command line names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omniwatch import settings
from omniwatch.desk.backtest import rules, tsdb
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.run import Side
from omniwatch.desk.backtest.site import Site
from omniwatch.settings import Settings
from omniwatch.system import user_yaml


def side(name: str, of: Settings, found: Site, files: Sequence[Path] = ()) -> Side:
    """Return a rule set: that of `files`, or where there are none that of the settings' own site. Raises BacktestError."""
    paths = list(files) or found.rule_files
    tsdb.check_rules(paths)
    every_s = of.alerts.evaluation_interval_s
    read = [rule for path in paths for rule in rules.read(path, every_s)]
    if not any(rule.is_alert for rule in read):
        raise BacktestError(f"{name}: no alert rule in it")
    return Side(name, of, read, found.targets, found.routing)


def title(paths: Sequence[Path]) -> str:
    """Return what a rule set is called that comes from these files."""
    if not paths:
        return "the default settings"
    return str(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def classify(paths: Sequence[Path]) -> tuple[Settings | None, list[Path]]:
    """Tell what was named: settings, or rule files, if anything. Raises BacktestError, SettingsError."""
    held = [path for path in paths if not is_rules(path)]
    if not held:
        return None, list(paths)
    if len(paths) > 1:
        raise BacktestError(
            f"{held[0]}: settings are a rule set by themselves: give rule files or one omniwatch.yaml"
        )
    return settings.load(held[0]), []


def is_rules(path: Path) -> bool:
    """Whether a file is one of rules, by its `groups`. Raises BacktestError where it cannot be read or is no YAML."""
    try:
        raw = user_yaml.load(path)
    except OSError as error:
        raise BacktestError(f"{path}: {error.strerror}") from error
    except user_yaml.YamlError as error:
        raise BacktestError(f"{path}: {error}") from error
    return isinstance(raw, dict) and "groups" in raw
