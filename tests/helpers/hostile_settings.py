"""Hostile values for every setting, and what each consumer of a rendered file has to read of those that are accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import msgspec
import yaml
from hypothesis import strategies as st
from msgspec import inspect

from omniwatch.bundle import render
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.settings import Settings, explain, parse

TEXTS = (
    "", " ", "it's-orin", "吉野家𠮷", "\ud842\udfb7", "\ud842", "a\nb", "a\r", "orin\n", "x\u2028y", "\x85", "\x00", "\x7f",
    "\U000e0001", "\ufeff", "'", '"', "\\", "# c", "- a", "a: b", "{a", "[a", "&a", "*a", "!a", "%zz", "%i", "%%", "$HOME", "${HOME}",
    "$$", "{{ .x }}", "}}", "[[ x ]]", "[% if %]", "~", "null", "yes", "1e3", "0x1f", "/a b/%i", "/x;y", "../../etc", "-", "tail:",
    "journal:x y", "http://", "http://a b", "http://a/%", "https://u:p@h:1/p?q=%20#f", "http://h\nExecStart=/bin/sh", "http://h/$x",
    "http://[::1]:9/", "http://[::1", "https://h/{{ x }}", "https://h/a'b", "h:1", ":9", "[::1]:1", "h:99999", "h:0", "h:x", "a b:1",
    "a.service", "a.service\n", "a\\x2db.service", "x" * 300, "a@b.example, c@d.example",
)  # fmt: skip
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    0.5,
    0.99,
    1.5,
    60,
    100,
    750,
    1e-320,
    5e-324,
    1e-7,
    1e9,
    1e300,
    float("inf"),
    float("nan"),
    2**31,
    2**53,
    2**63,
    10**30,
    True,
)
"""Of all sizes that a parser could stumble over."""


def leaves(kind: inspect.Type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], inspect.Type]]:
    """Yield every setting that is no group, with its type."""
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from leaves(field.type, (*path, field.name))
    else:
        yield path, kind


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Return values for a setting, most of them hostile; not all are of its type."""
    if isinstance(kind, inspect.UnionType):
        return st.one_of(map(values, kind.types))
    if isinstance(kind, inspect.LiteralType):
        return st.sampled_from(kind.values)
    if isinstance(kind, inspect.BoolType):
        return st.booleans()
    if isinstance(kind, inspect.ListType):
        return st.lists(values(kind.item_type), max_size=3)
    if isinstance(kind, inspect.StructType):
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind.fields})
    if isinstance(kind, inspect.StrType):
        return st.one_of(st.sampled_from(TEXTS), st.text(max_size=20))
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return st.one_of(st.sampled_from(NUMBERS), st.integers(1, 10_000), st.floats())
    return st.none()


SETTINGS = list(leaves(inspect.type_info(Settings)))


@st.composite
def hostile(draw: st.DrawFn) -> tuple[Settings, int, int]:
    """Set every setting in turn to a hostile value and keep what is accepted; return also how many were, and how many not."""
    raw: dict[str, Any] = {}
    accepted, refused, found = 0, 0, Settings()
    for path, kind in draw(st.permutations(SETTINGS)):
        tried = json.loads(json.dumps(raw))
        group = tried
        for step in path[:-1]:
            group = group.setdefault(step, {})
        group[path[-1]] = draw(values(kind))
        try:
            found = msgspec.convert(tried, Settings)
        except msgspec.ValidationError as error:
            said = explain(str(error), tried, Settings)
            refused += 1
        else:
            raw, said, accepted = tried, "", accepted + 1
        assert "\n" not in said
    assert parse(yaml.safe_dump(raw, allow_unicode=True)) == found
    return found, accepted, refused


def consume(settings: Settings) -> dict[PurePosixPath, str]:
    """Render, and read each file as its consumer does; hold what it says against what was set. Raises AssertionError."""
    profile = Settings().server.profile
    server = msgspec.structs.replace(settings.server, profile=profile, device_memory_gb=64)
    settings = msgspec.structs.replace(settings, server=server)
    files = render.render(settings)
    read: dict[str, Any] = {}
    for path, text in files.items():
        text.encode()
        if path.name.endswith(".test.yaml"):
            continue  # Read by promtool alone; with a wait of years they are large.
        if path.suffix in (".yaml", ".yml"):
            read[path.name] = load_yaml(text)
        elif path.suffix == ".json":
            read[path.name] = json.loads(text)
        elif path.suffix == ".service":
            read[path.name] = directives(text)
    _units(settings, read)
    _prometheus(settings, read)
    _receivers(settings, read["alertmanager.yml"])
    _grafana(settings, files)
    assert parse(files[PurePosixPath("deploy/omniwatch.yaml")]).sources == settings.sources
    own = parse(files[PurePosixPath("deploy/omniwatch.yaml")])
    assert (own.site.exporter, own.server.unit) == (settings.site.exporter, settings.server.unit)
    return files


def directives(unit: str) -> list[tuple[str, str]]:
    """Return a unit's directives as systemd reads them: continued lines joined, specifiers put in."""
    lines = [line for line in unit.replace("\\\n", " ").split("\n") if line and line[0] not in "#;["]
    return [(name, value.replace("%%", "%")) for name, _, value in (line.partition("=") for line in lines)]


def _units(settings: Settings, read: dict[str, Any]) -> None:
    journal = any("journal:" in source for source in settings.sources)
    fleet = settings.fleet
    for name, unit in read.items():
        if not name.endswith(".service"):
            continue
        assert {key for key, _ in unit} <= KEYS[name], name
        of = dict(unit)
        base = settings.site.runbook_base_url
        assert of.get("Documentation", "").startswith(base and base.rstrip("/") + "/")
        assert bool(base) == ("Documentation" in of)
        if name == "omniwatch.service":
            assert ("SupplementaryGroups" in of) == journal
        if name == "omniwatch-uplink.service":
            loaded = [value for key, value in unit if key == "LoadCredential"]
            named = (("token", fleet.token_file), ("ca", fleet.ca_file))
            assert loaded == [f"{key}:{path}" for key, path in named if path]
            words = of["ExecStart"].split()
            if fleet.agent == "vmagent":
                assert f"-remoteWrite.url={fleet.remote_write_url}" in [
                    word.replace("$$", "$") for word in words
                ]
                assert f"-httpListenAddr={fleet.agent_address}" in words


def _prometheus(settings: Settings, read: dict[str, Any]) -> None:
    jobs = {job["job_name"]: job["static_configs"][0] for job in read["prometheus.yml"]["scrape_configs"]}
    assert jobs["omniwatch"] == {
        "targets": [settings.site.exporter],
        "labels": {"device": settings.site.device},
    }
    assert ("model_server" in jobs) == bool(settings.site.model_server)
    labels = read["prometheus.yml"]["global"].get("external_labels")
    assert labels is None or labels == {
        "site": settings.fleet.site,
        "model": settings.fleet.model,
        "release": settings.fleet.release,
    }
    rules = {
        rule["alert"]: rule
        for name, file in read.items()
        if name.endswith(".rules.yaml")
        for group in file["groups"]
        # Of two rules of a name, one pages and the other makes a ticket of what the network caused.
        for rule in sorted(group["rules"], key=lambda rule: rule.get("labels", {}).get("severity") == "page")
        if "alert" in rule
    }
    assert float(rules["CodecDrift"]["expr"].rpartition(">")[2]) == settings.alerts.drift_page_ms
    assert float(rules["TokenRTT"]["expr"].rpartition(">")[2]) == settings.alerts.rtt_page_ms
    assert rules["Watchdog"]["labels"]["device"] == settings.site.device
    url = settings.site.runbook_base_url.rstrip("/")
    for name, rule in rules.items():
        if name not in ("AlertHeld", "NetworkLeads"):
            said = rule["annotations"]
            assert ("runbook" in said) != ("runbook_url" in said)
            assert said.get("runbook", f"omniwatch runbook {name}") == f"omniwatch runbook {name}"
            assert not url or said["runbook_url"] == f"{url}/{name}.md"


def _receivers(settings: Settings, read: dict[str, Any]) -> None:
    of = {one["name"]: one for one in read["receivers"]}
    wanted = settings.receivers.beside(settings.notify)
    for name in ("page", "ticket", "watchdog"):
        url = getattr(wanted, f"{name}_webhook_url")
        assert [one["url"] for one in of[name].get("webhook_configs", [])] == ([url] if url else [])
    for name in ("page", "ticket"):
        channels = getattr(wanted, name)
        assert [one["to"] for one in of[name].get("email_configs", [])] == [channels.email_to] * bool(
            channels.email_to
        )
    if "global" in read:
        assert read["global"]["smtp_from"] == wanted.mail.sender


def _grafana(settings: Settings, files: dict[PurePosixPath, str]) -> None:
    folder = PurePosixPath("deploy/grafana/provisioning")
    provider = yaml.safe_load(files[folder / "dashboards/omniwatch.yaml"])["providers"][0]
    source = yaml.safe_load(files[folder / "datasources/omniwatch.yaml"])["datasources"][0]
    assert provider["folder"].replace("$$", "$") == settings.grafana.folder
    assert provider["options"]["path"].replace("$$", "$") == settings.grafana.dashboards_dir
    assert source["url"].replace("$$", "$") == settings.grafana.prometheus_url


KEYS = {
    path.name: {key for key, _ in directives(text)}
    | {"Documentation", "LoadCredential", "SupplementaryGroups", "ExecStop"}
    for path, text in render.render(Settings()).items()
    if path.suffix == ".service"
}
"""The directives that each unit may have."""
