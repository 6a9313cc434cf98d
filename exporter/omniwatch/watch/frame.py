"""One frame of `watch`: the state line, both curves of the worst listener, a row for each listener."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from omniwatch.watch.braille import drawn
from omniwatch.watch.window import Column, Window
from omniwatch.web.words import Strings, state_line

CURVE_ROWS = 5
AXIS = 8
"""Characters beside a curve."""
STYLES = {"well": "green", "suffers": "bold red", "blind": "bold yellow"}
SIGNS = {"well": "ok", "suffers": "!!", "blind": "??"}
"""Colour is never the only sign."""


def frame(
    window: Window, strings: Strings, width: int, height: int, *, plain: bool, lost_t: float | None = None
) -> Group:
    """Return a frame of so many columns and rows; `lost_t` is since when the sidecar has not answered."""
    feed = window.feed
    level = feed["state"]["level"]
    heading = f"Omniwatch {feed['device_name']}  {time.strftime('%H:%M:%S', time.localtime(feed['now']))}"
    lines: list[Any] = [Text(heading, style="bold", overflow="crop", no_wrap=True)]
    line = f"{SIGNS[level]} {state_line(feed['state'], strings)}"
    style = STYLES[level]
    if lost_t is not None:
        since = time.strftime("%H:%M:%S", time.localtime(lost_t))
        line, style = f"?? {strings['page.gone'].replace('{since}', since)}", STYLES["blind"]
    lines.append(Text(_fit(line, plain), style=style))
    rows = feed["listeners"]
    slot = str(rows[0]["slot"]) if rows else next(iter(window.curves), "")
    drift, rtt = feed["rules"]
    for rule, name, title in ((drift, "drift", "page.drift"), (rtt, "rtt", "page.rtt")):
        values = window.curves.get(slot, {}).get(name, [])
        lines += _curve(values, rule, slot, strings[title], width, plain)
    left = height - len(lines) - 3
    lines.append(_table(rows[: max(1, left)], strings, width, plain))
    hidden = len(rows) - max(1, left) + feed["more"]
    if hidden > 0:
        lines.append(Text(_fit(strings["page.more"].replace("{count}", str(hidden)), plain), style="dim"))
    return Group(*lines)


def _fit(text: str, plain: bool) -> str:
    """Return text as the terminal can show it, with nothing in it that is a command to a terminal."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in text)
    return shown.encode("ascii", "replace").decode() if plain else shown


def _curve(
    values: Column, rule: dict[str, Any], slot: str, title: str, width: int, plain: bool
) -> list[Text]:
    threshold = rule["threshold"]
    both = rule["of"] == "drift"
    most = max([1.5 * threshold, *(abs(value) for value in values if value is not None)])
    known = [value for value in values if value is not None]
    last = f"{known[-1]:+.0f} ms" if known and values[-1] is not None else "-"
    lines = drawn(
        values,
        (threshold, -threshold) if both else (threshold,),
        -most if both else 0.0,
        most,
        width=max(8, width - AXIS),
        height=CURVE_ROWS,
        plain=plain,
    )
    head = f"{title} [{slot or '-'}] {last}  ({rule['name']}: {threshold:g} ms, {rule['for_s']:g} s)"
    found = [Text(_fit(head, plain), style="bold", overflow="crop", no_wrap=True)]
    for number, line in enumerate(lines):
        label = {0: f"{most:.0f}", CURVE_ROWS - 1: f"{-most:.0f}" if both else "0"}.get(number, "")
        found.append(Text(f"{label:>{AXIS - 1}} {line}", no_wrap=True, overflow="crop"))
    return found


def _table(rows: list[dict[str, Any]], strings: Strings, width: int, plain: bool) -> Table:
    table = Table(box=None, pad_edge=False, expand=False, header_style="bold")
    wide = width >= 70
    columns = ["page.listener", "page.state", "page.drift", "page.rtt", "page.underrun"]
    columns += ["page.ear", "page.bad"] if wide else []
    for key in columns:
        table.add_column(_fit(strings[key], plain), no_wrap=True, overflow="crop" if plain else "ellipsis")
    for row in rows:
        states = ", ".join(f"{rule} {strings[f'rule.{state}']}" for rule, state in row["rules"].items())
        bad = row["bad"]
        cells = [
            str(row["slot"]),
            states or strings[f"listener.{row['state']}"],
            _ms(row["drift_ms"], "+"),
            _ms(row["rtt_ms"], "") + (f" {strings['vantage.' + row['vantage']]}" if row["rtt_ms"] else ""),
            f"{row['underrun_s']:.1f} s",
        ]
        if wide:
            told = bad and f"{strings['symptom.' + bad['symptom']]}: {strings['cause.' + bad['cause']]}"
            cells += [strings[f"ear.{row['ear']}"], told or "-"]
        style = "red" if "firing" in row["rules"].values() else ""
        table.add_row(
            *(Text(_fit(cell, plain), overflow="crop" if plain else None) for cell in cells), style=style
        )
    return table


def _ms(value: float | None, sign: str) -> str:
    return "-" if value is None else f"{value:{sign}.0f} ms"
