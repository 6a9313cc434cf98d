"""Expand the templates in a rule's labels: those that name a label. Only the server can fill in others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from omniwatch.desk.backtest.states import Labels, Series, merged, unnamed

TEMPLATED = "templated"
"""Stands for a label's text that depends on more than the labels of the series."""
_OPEN = "{{"
_LABEL = re.compile(r"\{\{\s*(?:\$labels|\.Labels)\.([A-Za-z_]\w*)\s*\}\}", re.ASCII)


def is_template(text: str) -> bool:
    """Whether a rule's label is not to be taken as it stands."""
    return _OPEN in text


def expanded(text: str, labels: Mapping[str, str]) -> str | None:
    """Write out a rule's label for a series; None where only Prometheus could."""
    if is_template(_LABEL.sub("", text)):
        return None
    return _LABEL.sub(lambda match: labels.get(match[1], ""), text)


def alerts(given: Mapping[str, str], answers: Iterable[Series]) -> list[tuple[Labels, dict[float, float]]]:
    """Return the labels and the values of each alert of a rule that gives these labels, in the order of the labels.

    A label that cannot be written out leaves each series an alert, with its own label where it has one of that name. Raises
    BacktestError where two series would be one alert.
    """
    found = [(one, {name: expanded(text, one.labels) for name, text in given.items()}) for one in answers]
    if all(text is not None for _, written in found for text in written.values()):
        labelled = (
            {**one.labels, **{name: text or "" for name, text in written.items()}} for one, written in found
        )
        plain = ({name: text for name, text in labels.items() if text} for labels in labelled)
        points = [one.points for one, _ in found]
        return sorted(merged(map(Series, plain, points)).items(), key=lambda alert: alert[0])
    apart = []
    for one, written in found:
        known = {name: text for name, text in written.items() if text is not None}
        unknown = {name: one.labels.get(name, TEMPLATED) for name in written if name not in known}
        apart.append((unnamed({**one.labels, **known, **unknown}), dict(one.points)))
    return sorted(apart, key=lambda alert: alert[0])
