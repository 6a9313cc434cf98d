"""A YAML file of a user's that does not hold: a line with its name, from each reader, and the one before goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from omniwatch.centre import inventory
from omniwatch.desk.backtest import rule_sets, rules
from omniwatch.desk.link import scenario
from omniwatch.doctor import config as doctor
from omniwatch.doctor.device import AbsentError
from omniwatch.settings import load
from omniwatch.system import user_yaml
from omniwatch.system.errors import UserError
from omniwatch.web import config as web

DATE = "a value cannot be read; text that looks like a date or a number wants quotes"
DEEP = f"nested more than {user_yaml.MAX_DEPTH} levels deep"
MANY = f"more than {user_yaml.MAX_NODES} values, aliases followed"


def _chain(first: str, each: str, count: int) -> bytes:
    return "\n".join([f"a0: &a0 {first}", *(each.format(n, n - 1) for n in range(1, count))]).encode()


HOSTILE = {
    "no date": (b"a: 1\nb: 2026-02-30", f"line 2: {DATE}"),
    "no number": (b'a: !!int ""', f"line 1: {DATE}"),
    "no bool": (b"a: !!bool x", f"line 1: {DATE}"),
    "no time": (b"a: !!timestamp x", f"line 1: {DATE}"),
    "many digits": (b"a: " + b"9" * 5000, f"line 1: {DATE}"),
    "surrogate": (b'a: "\\ud800"', "line 1: found invalid Unicode character escape code"),
    "600 levels": (b"[" * 600, f"line 1: {DEEP}"),
    "a million levels": (b"[" * 1_000_000, f"line 1: {DEEP}"),
    "deep mappings": (b"{a: " * 600, f"line 1: {DEEP}"),
    "deep aliases": (_chain("[x]", "a{0}: &a{0} [*a{1}]", 300), f"line 99: {DEEP}"),
    "alias bomb": (_chain("[x, x]", "a{0}: &a{0} [*a{1}, *a{1}]", 60), f"line 19: {MANY}"),
    "merge bomb": (_chain("{x: 1}", "a{0}: &a{0} {{<<: [*a{1}, *a{1}]}}", 60), f"line 19: {MANY}"),
    "circle": (b"a: &a [*a]", "line 1: an alias of what it is in itself"),
    "NUL": (b"a: \0", "not YAML: unacceptable character #x0000"),
    "no UTF-8": (b"a: \xff", "not UTF-8: invalid start byte"),
    "cut short": (b"a: [1", "line 1: did not find expected ',' or ']'"),
    "a tag": (b"a: !!python/object:os.system x", "line 1: could not determine a constructor for the tag"),
    "two documents": (b"a: 1\n---\nb: 1", "line 2: but found another document"),
    "an escape": (b"a: &\x1b[2J x", "not YAML: unacceptable character #x001b"),
    "no key": (b"{[a]: b}", "line 1: found unhashable key"),
}
READERS: dict[str, Callable[[Path], object]] = {
    "omniwatch.yaml": load,
    "web.yml": web.load,
    "fleet.yaml": inventory.load,
    "scenario.yaml": lambda path: scenario.load(str(path)),
    "own.rules.yaml": lambda path: rules.read(path, 15.0),
    "either.yaml": rule_sets.is_rules,
}
LONGEST_S = 20.0


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", READERS)
def test_it_is_one_line_with_the_files_name(tmp_path: Path, name: str, kind: str) -> None:
    content, says = HOSTILE[kind]
    (tmp_path / name).write_bytes(content)
    began = time.process_time()
    with pytest.raises(UserError) as raised:
        READERS[name](tmp_path / name)
    assert time.process_time() - began < LONGEST_S
    assert str(raised.value).partition(": ")[0].endswith(name)
    assert f"{name}: {says}" in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_doctor_leaves_it_out_and_quotes_nothing(tmp_path: Path, kind: str) -> None:
    (tmp_path / "web.yml").write_bytes(HOSTILE[kind][0])
    with pytest.raises(AbsentError, match=r"web.yml: not YAML(, line \d+)?; left out$"):
        doctor._parsed(tmp_path / "web.yml")  # noqa: SLF001


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_web_configuration_before_goes_on(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "web.yml"
    path.write_text("http_server_config: {headers: {X-Frame-Options: deny}}")
    watched = web.WatchedConfig(path)
    before = watched.current()
    path.write_bytes(HOSTILE[kind][0])
    assert watched.current() is before
    (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert HOSTILE[kind][1] in str(vars(logged)["fields"])


def test_pyyamls_own_parser_is_held_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no libyaml, which refuses half a surrogate pair by itself."""
    monkeypatch.setattr(user_yaml, "_LOADER", yaml.SafeLoader)
    for kind in ("surrogate", "600 levels", "alias bomb", "circle", "cut short"):
        with pytest.raises(user_yaml.YamlError):
            user_yaml.parse(HOSTILE[kind][0])


def test_a_key_that_is_there_twice() -> None:
    assert user_yaml.parse("a: 1\na: 2") == {"a": 2}
    with pytest.raises(user_yaml.YamlError, match=r'^line 2: "a" is there twice$'):
        user_yaml.parse("a: 1\na: 2", unique=True)
    with pytest.raises(user_yaml.YamlError, match=r'^line 2: "a \[2J" is there twice$'):
        user_yaml.parse('"a\\e[2J": 1\n"a\\e[2J": 2', unique=True)


def test_what_holds_is_what_yaml_says() -> None:
    text = "a: &a [1, 2.5, x, null, true, 2026-02-28]\nb: *a\nc: {<<: {d: 1}, e: 2}\n"
    assert user_yaml.parse(text) == yaml.safe_load(text)
    assert user_yaml.parse("") is None
