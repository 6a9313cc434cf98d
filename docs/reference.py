"""Write the generated parts of the manual: `reference.py` brings them up to date, `reference.py --check` says which are not.

A page has a place for each: the text between `<!-- generated: NAME -->` and `<!-- end of NAME -->`. Everything outside is written by
hand and left alone. The picture of the rooms is a file of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import click
import msgspec
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import failures
import first_minute
import page_picture
import rooms
from field_docs import Field, fields
from omniwatch import cli, events
from omniwatch.bundle import catalogue, render
from omniwatch.centre import uplink_metrics
from omniwatch.cli import main
from omniwatch.metrics import stream_metrics
from omniwatch.metrics.sidecar_metrics import OWN_FAMILIES
from omniwatch.settings import Settings

DOCS = Path(__file__).resolve().parent
Family = tuple[str, str, str, str]
"""Name, kind, labels, help."""


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table. Pipes in cells are escaped."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


# ---- settings


def _setting(path: str, field: Field) -> tuple[str, ...]:
    allowed = f"{field.kind}, {field.limits}" if field.limits else field.kind
    return f"`{path}{field.name}`", field.doc, field.default, field.unit, allowed


def settings_reference() -> str:
    """Describe every field of omniwatch.yaml, one table a group."""
    text = ["## sources\n\n"]
    head = ("setting", "what it is", "default", "unit", "allowed")
    plain = [field for field in fields(Settings) if field.struct is None]
    text.append(table(head, iter([_setting("", field) for field in plain])))
    for group in fields(Settings):
        if group.struct is not None:
            text += _group(f"{group.name}.", group.struct, head)
    return "".join(text)


def _group(path: str, struct: type[msgspec.Struct], head: tuple[str, ...]) -> Iterator[str]:
    own = fields(struct)
    yield f"\n{'##' if path.count('.') == 1 else '###'} {path.rstrip('.')}\n\n{_sentence(struct)}\n\n"
    rows = [_setting(path, field) for field in own if field.struct is None or field.is_list]
    if rows:
        yield table(head, iter(rows))
    for field in own:
        if field.struct is not None:
            yield from _group(f"{path}{field.name}{'[]' if field.is_list else ''}.", field.struct, head)


def _sentence(struct: type) -> str:
    return " ".join((struct.__doc__ or "").split())


# ---- events


def events_reference() -> str:
    """Describe every event and its fields."""
    head = ("field", "type", "required", "what it is")
    common = [field.name for field in fields(events.Event)]
    text = [
        "## Every event\n\n",
        table(head, ((f"`{field.name}`", *_of_event(field)) for field in _with_ev(fields(events.Event)))),
    ]
    for struct in get_args(events.AnyEvent):
        own = [field for field in fields(struct) if field.name not in common]
        text.append(f"\n## {events.EV_OF[struct]}\n\n{_sentence(struct)}\n\n")
        text.append(table(head, ((f"`{field.name}`", *_of_event(field)) for field in own)))
    return "".join(text)


def _with_ev(common: list[Field]) -> list[Field]:
    kinds = "Kind of the event: one of the headings below."
    return [Field("ev", kinds, "", "", "", "text", True, None, False), *common]


def _of_event(field: Field) -> tuple[str, ...]:
    kind = f"{field.kind}, {field.limits}" if field.limits else field.kind
    unit = f" ({field.unit})" if field.unit and field.unit not in kind else ""
    default = "" if field.is_required or field.default in ("none", "") else f" Default {field.default}."
    return kind + unit, "yes" if field.is_required else "", field.doc + default


# ---- metrics


def _families() -> Iterator[Family]:
    for family in (*stream_metrics.FAMILIES, *OWN_FAMILIES):
        suffix = "_total" if family.kind == "counter" else ""
        yield family.name + suffix, family.kind, ", ".join(family.labels), family.help
    for family in stream_metrics.HISTOGRAMS:
        yield family.name, "histogram", ", ".join(family.labels), family.help


def metrics_reference() -> str:
    """Describe what the sidecar serves."""
    rows = ((f"`{name}`", kind, labels, text) for name, kind, labels, text in _families())
    return table(("metric", "type", "labels", "what it is"), rows)


def uplink_reference() -> str:
    """Describe what leaves a device."""
    rows = ((f"`{one.name}`", one.kind, ", ".join(one.labels), one.help) for one in uplink_metrics.FAMILIES)
    return table(("series", "type", "further labels", "what it is"), rows)


# ---- commands


def commands_reference() -> str:
    """Describe every command from its help, those of a device first."""
    ctx = click.Context(main, info_name="omniwatch")
    parts = (("On a device", cli.of_device()), ("At a desk", cli.commands_in(cli.DESK)))
    return "".join(
        text for title, known in parts for text in (f"\n## {title}\n", *_commands(main, known, ctx))
    )


def _commands(group: click.Group, names: Iterable[str], ctx: click.Context) -> Iterator[str]:
    for name in names:
        command = group.get_command(ctx, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=ctx)
        depth = "#" * (1 + len(own.command_path.split()))
        usage = " ".join(own.command.collect_usage_pieces(own))
        yield f"\n{depth} {own.command_path}\n\n```text\n{own.command_path} {usage}\n```\n\n"
        yield _help(command.help or "")
        rows = [
            _option(param, own)
            for param in command.params
            if isinstance(param, click.Option) and not param.hidden
        ]
        if rows:
            yield table(("option", "what it does"), iter(rows))
        if isinstance(command, click.Group):
            yield from _commands(command, command.list_commands(own), own)


def _help(text: str) -> str:
    """Turn a help text into paragraphs, and what is set off by \\b into blocks."""
    out = []
    for part in re.split(r"\n\s*\n", re.sub(r"(?m)^[ \t]+$", "", text)):
        lines = part.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            body = [line for line in lines[1:] if line.strip()]
            if body and body[0].strip() == "Example:":
                body = body[1:]
            margin = min((len(line) - len(line.lstrip()) for line in body), default=0)
            kind = "sh" if all("omniwatch" in line for line in body) else "text"
            out.append(f"```{kind}\n" + "".join(line[margin:] + "\n" for line in body) + "```\n\n")
        elif lines:
            out.append(_escaped(" ".join(" ".join(lines).split())) + "\n\n")
    return "".join(out)


def _escaped(text: str) -> str:
    """Keep Markdown's own signs as they are, outside of code."""
    parts = text.split("`")
    return "`".join(
        re.sub(r"([*_<>#\[\]])", r"\\\1", part) if i % 2 == 0 else part for i, part in enumerate(parts)
    )


def _option(param: click.Option, ctx: click.Context) -> tuple[str, str]:
    record = param.get_help_record(ctx)
    names, text = record or (", ".join(param.opts), "")
    return f"`{names}`", _escaped(" ".join(text.split()))


# ---- alerts


def _alerts() -> Iterator[tuple[str, str, dict[str, Any]]]:
    found = render.render(Settings())
    for path, text in found.items():
        if path.name.endswith(".rules.yaml") and path.parent == PurePosixPath("alerts"):
            for group in yaml.safe_load(text)["groups"]:
                for rule in group["rules"]:
                    if PurePosixPath(f"runbooks/{rule.get('alert')}.md") in found:
                        yield path.name.removesuffix(".rules.yaml"), rule["alert"], rule


GROUPS = {
    "streaming": ("What the listener suffers", "听者的感受"),
    "early": ("Early warning", "预警"),
    "objectives": ("Objectives", "目标"),
    "server": ("The model server", "模型服务器"),
    "device": ("The device", "设备"),
    "resumption": ("Resumption", "断线续接"),
    "sidecar": ("Monitoring itself", "监控本身"),
    "monitoring": ("What scrapes, judges and notifies", "抓取、判定与通知"),
    "fleet": ("A fleet, at its centre", "设备群（中心）"),
}
"""Titles of the rules files, English and Chinese; a file that is not here has its own name."""


def alerts_reference(language: int = 0) -> str:
    """List every alert with its severity, its summary and its runbook: English (0) or Chinese (1)."""
    known = catalogue.load()
    groups: dict[str, dict[str, tuple[str, ...]]] = {}
    words = ({"page": "page", "ticket": "ticket"}, {"page": "立即呼叫", "ticket": "工单"})[language]
    runbooks = "../../runbooks" if language else "../runbooks"
    for group, alert, rule in _alerts():
        annotations = rule["annotations"]
        summary = annotations["summary_zh" if language else "summary"]
        severity = rule.get("labels", {}).get("severity", "")
        said = words.get(severity, "always fires" if not language else "一直触发（心跳）")
        said = f"**{said}**" if severity == "page" else said
        cells = (f"[{alert}]({runbooks}/{alert}.md)", said, summary)
        why = () if language else (known[alert].why,)
        groups.setdefault(group, {}).setdefault(alert, (*cells, *why))
    head = (("alert", "severity", "what it says", "why this severity"), ("告警", "级别", "含义"))[language]
    text = []
    for group in sorted(groups, key=lambda name: [*GROUPS, name].index(name)):
        text.append(f"\n### {GROUPS.get(group, (group, group))[language]}\n\n")
        text.append(table(head, iter(groups[group].values())))
    return "".join(text).lstrip("\n")


# ---- failures


def failures_reference() -> str:
    """List every failure that is known: who is told, how soon, and which test shows it."""
    return "\n".join(f"## {area}\n\n{table(failures.HEAD, rows)}" for area, rows in failures.reference())


# ---- the manual's table


def manual_reference() -> str:
    """Give the table of the manual's front page, as links from the README beside `docs`."""
    lines = (DOCS / "index.md").read_text(encoding="utf-8").splitlines(keepends=True)
    rows = "".join(line for line in lines if line.startswith("|"))
    return rows.replace("](", f"]({DOCS.name}/")


# ---- pages

PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "settings": ("settings.md", settings_reference),
    "events": ("events.md", events_reference),
    "metrics": ("measured.md", metrics_reference),
    "uplink": ("measured.md", uplink_reference),
    "commands": ("commands.md", commands_reference),
    "failures": ("failures.md", failures_reference),
    "alerts": ("when-it-fires.md", alerts_reference),
    "first-60-zh": ("zh/first-60-seconds.md", first_minute.reference),
    "alerts-zh": ("zh/when-it-fires.md", lambda: alerts_reference(1)),
    "manual": ("../README.md", manual_reference),
}


def filled(text: str, name: str, part: str) -> str:
    """Return a page with its generated part `name` replaced. Raises ValueError when the page has no place for it."""
    begin, end = f"<!-- generated: {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no place for the generated part {name}")
    return f"{before}{begin}\n{part.strip()}\n\n{end}{after}"


def pages() -> dict[Path, str]:
    """Return every file with a generated part, as it should be."""
    texts: dict[Path, str] = {}
    for name, (page, make) in PARTS.items():
        path = (DOCS / page).resolve()
        if path.exists():
            texts[path] = filled(texts.get(path) or path.read_text(encoding="utf-8"), name, make())
    texts[DOCS / "rooms.svg"] = rooms.picture(DOCS.parent / "exporter" / "omniwatch")
    texts[DOCS / "page.svg"] = page_picture.picture()
    return texts


def stale() -> dict[Path, str]:
    """Return the files that are not as they should be, with the text that they should have."""
    return {
        path: text
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


if __name__ == "__main__":
    different = stale()
    for path, text in different.items():
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(
            f"{'stale' if '--check' in sys.argv else 'wrote'}: {path.relative_to(DOCS.parent)}\n"
        )
    sys.exit(1 if different and "--check" in sys.argv else 0)
