"""What a chat group sees of a text: whom it calls, where it links, how it is formatted, and the words themselves.

Read by the syntax that each vendor documents (the examples are theirs), and by no more of an escape than there is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_LINK = r"\[(?P<words>(?:\\.|[^][\n\\])*)\]\((?P<to>[^)\s]*)\)"
_TAG = r"<(?P<tag>/?(?:font|at|a|u|img|hr|br|text_tag|[@!#]|https?:|mailto:)[^<>]*)>"
_FORMAT = r"\*\*|~~|(?<!\w)[*_]|[*_](?!\w)|`"
_CODE = r"`(?P<code>[^`\n]+)`"


class ChatFormat(NamedTuple):
    """How a chat system reads a text."""

    documented: str
    """An example of the vendor's, with all that is more than words."""
    syntax: tuple[str, ...]
    """Patterns whose groups `shown` reads."""
    text_of: Callable[[dict[str, Any]], str]
    """The text within the body of a robot's request."""
    limit: int
    """Bytes that the vendor documents: of the request, or of the text."""
    limits_text: bool = False
    is_html: bool = False
    """Whether `&lt;` is a sign."""
    call: str = ""
    """How the person zhang.san is called in the text, as `syntax` finds it; "" where another field of the body calls."""


FORMATS = {
    "dingtalk": ChatFormat(
        "#### 杭州天气 @150XXXXXXXX\n> 9度，**西北风1级**，[天气](https://www.dingtalk.com)",
        (
            # HTML is read before Markdown: no backslash makes a tag plain.
            r"\\(?P<plain>[!-/:;=?@\[-`{-~])",
            _CODE,
            _TAG,
            _LINK,
            _FORMAT,
            r"(?m:^(?P<block>#+ |> |[-+] |\d+\. ))",
        ),
        lambda body: body["markdown"]["text"],
        20_000,
        is_html=True,
    ),
    "wecom": ChatFormat(
        '实时新增用户反馈<font color="warning">132例</font>，[链接](https://work.weixin.qq.com/api/doc) '
        "**加粗** <@userid> `code`",
        (_CODE, _TAG, _LINK, r"\*\*|\*|`", r"(?m:^(?P<block>#+ |> ))"),
        lambda body: body["markdown"]["content"],
        4096,
        limits_text=True,
        call="@zhang.san",
    ),
    "feishu": ChatFormat(
        "*斜体* **粗体** ~~删除线~~ [文字链接](https://www.feishu.cn) <at id=all></at> <font color='red'>红</font>",
        (
            r"\\(?P<plain>[!-/:-@\[-`{-~])",
            _CODE,
            _TAG,
            _LINK,
            _FORMAT,
            r":(?P<picture>\w+):",
            r"(?m:^(?P<block>#+ |> |[-+] |\d+\. ))",
        ),
        lambda body: body["card"]["elements"][0]["content"],
        20_000,
        is_html=True,
        call="at id=zhang.san",
    ),
    "slack": ChatFormat(
        "<!channel> <@U024BE7LH> <https://example.com|Example> *bold*",
        (_TAG,),
        lambda body: body["attachments"][0]["text"],
        40_000,
        is_html=True,
    ),
}
"""By kind of robot; Slack is Alertmanager's own."""


class Shown(NamedTuple):
    """A text as its readers see it; `calls` and `links` are in the order they come."""

    calls: list[str]
    links: list[str]
    formats: list[str]
    words: str


def shown(kind: str, text: str) -> Shown:
    """Read a text as the clients of this chat system do."""
    found = Shown([], [], [], "")
    words, at = "", 0
    for match in re.finditer("|".join(f"(?:{part})" for part in FORMATS[kind].syntax), text):
        words += text[at : match.start()]
        at = match.end()
        named = {name: value for name, value in match.groupdict().items() if value is not None}
        if "plain" in named:
            words += named["plain"]
        elif "code" in named:
            # Clients that know no code have its links; whether others look for people there is documented nowhere.
            found.calls.extend(re.findall("<[^<>]*>", named["code"]))
            found.links.extend(link["to"] for link in re.finditer(_LINK, named["code"]))
            found.formats.append("code")
            words += named["code"]
        elif "to" in named:
            found.links.append(named["to"])
            words += named["words"]
        elif "tag" in named:
            tag = named["tag"]
            listed = (
                found.calls if re.match("at |[@!]", tag) else found.links if ":" in tag else found.formats
            )
            listed.append(tag)
        else:
            found.formats.append(match[0])
    words += text[at:]
    return found._replace(words=html.unescape(words) if FORMATS[kind].is_html else words)
