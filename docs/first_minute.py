"""The heads of the runbook pages in Chinese: words from the catalogue of alerts, facts from the English page."""

from __future__ import annotations

import re
from pathlib import Path

from omniwatch.bundle import catalogue

RUNBOOKS = Path(__file__).resolve().parent.parent / "runbooks"
HEAD = re.compile(
    r"""- \*\*Till morning\?\*\* (?P<waits>Yes|No)\b.*
- \*\*Who suffers:\*\* .*
- \*\*Command:\*\* (?P<command>`.*`)
- \*\*Picture:\*\* (?P<dashboard>[\w ]+), panel "(?P<panel>[^"]+)".*

Severity: (?P<severity>\w+) · expected: .* · escalate to: the owner of (?P<owner>[\w ]+) · .*"""
)
SEVERITIES = {"page": "立即呼叫", "ticket": "工单", "none": "心跳"}
OWNERS = {
    "the model server": "模型服务器",
    "the device": "设备",
    "the monitoring": "监控",
    "the network": "网络",
    "the client": "客户端",
}


def section(name: str, page: str, words: catalogue.FirstMinute) -> str:
    """Return an alert's section. Raises ValueError for a page whose head has another form."""
    head = HEAD.search(page)
    if head is None or head["owner"] not in OWNERS:
        raise ValueError(f"runbooks/{name}.md: its head is not as those of the other pages")
    return f"""## {name}

- **能等到早上吗？** {"能" if head["waits"] == "Yes" else "不能"}：{words.morning}
- **谁受影响：** {words.who}
- **命令：** {head["command"]}
- **看图：** {head["dashboard"]}，面板“{head["panel"]}”：{words.picture}

级别：{SEVERITIES[head["severity"]]} · 预期：{words.expected} · 升级给：{OWNERS[head["owner"]]}的负责人 · 手册：[{name}](../../runbooks/{name}.md)
"""


def reference() -> str:
    """Return the sections of all alerts, by name."""
    return "\n".join(
        section(name, (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8"), entry.first_60_zh)
        for name, entry in sorted(catalogue.load().items())
    )
