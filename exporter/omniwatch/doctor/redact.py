"""Remove secrets from text: known ones wherever they stand, others by the words around them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

GONE = "<redacted>"
SHORTEST = 4
"""A known secret shorter than this is no secret, and would be found in every other word."""

COMMON = frozenset({
    "admin", "alert", "alertmanager", "alerting", "alerts", "client", "config", "device", "devices", "error",
    "errors", "events", "exporter", "fleet", "frame", "frames", "grafana", "heartbeat", "info", "integration",
    "integrations", "journal", "json", "localhost", "markdown", "message", "messages", "metrics", "model",
    "monitoring", "name", "notifications", "notify", "omni", "omniwatch", "page", "pages", "prometheus",
    "root", "server", "service", "services", "severity", "sidecar", "source", "state", "status", "stream",
    "streams", "system", "systemd", "text", "ticket", "true", "turn", "type", "unit", "user", "username",
    "vllm", "vllm-omni", "vmagent", "warning", "watchdog", "webhook", "webhooks",
})  # fmt: skip
"""Words that stand all over a bundle: as a user's name or a part of an address they hide nothing, and taken out
everywhere they would take along what the bundle is for.
"""

_NAME = (
    r"(?:pass(?:word|wd|phrase|code)?|secret|token(?!s\b|s_|_ids?\b|iz|_?rtt|_latency|_seconds)|api[ _-]?key|apikey|(?:access|account|licen[cs]e)[ _-]?key"
    r"|routing[_-]?key|private[_-]?key|signing[_-]?key|credentials?|signature|hmac|session[_-]?id)"
)
_KEY = rf"(?:{_NAME}|[\w.]*[_-]key)"
"""Also a name that ends in a key of its own kind: encryption_key."""
SECRET_NAME = re.compile(
    _NAME + r"|^(?:key|sign|auth|authorization|cookie|pwd|user(?:name)?)$", re.IGNORECASE
)
"""A setting or a header whose value is nobody else's business, unless it names a file."""
_HARMLESS = re.compile(
    r"from|to|start|end|step|time|query|match\[\]|limit|refresh|orgId|viewPanel|var-[\w-]+|type|state"
)
"""Query arguments of Prometheus' and Grafana's own addresses."""
_ITEMS = (
    r"(?:\\\"(?:[^\"\\\r\n]|\\[^\"\r\n])*(?:\\\")?|\"(?:[^\"\\\r\n]|\\.)*\"?|'(?:[^'\\\r\n]|\\.)*'?"
    r"|[^\"'()\[\]\r\n]|\r?\n(?=[ \t\])]))*"
)
"""Of a list as JSON, Python and YAML write it: quoted words, in which a bracket ends nothing, and what stands between, lines
that are indented included."""
_LIST = rf"[\[(]{_ITEMS}(?:[\[(]{_ITEMS}[\])]?{_ITEMS})*[\])]?"
_MAPPING = r"\{(?:[^{}\r\n]|\{[^{}\r\n]*\}?)*\}?"
_URL = re.compile(r"\b(?P<scheme>[a-z][a-z0-9+.-]{1,15})://(?P<rest>[^\s\"'<>`\\)\]}|]+)", re.IGNORECASE)
_USERINFO = re.compile(
    r"\b(?P<scheme>[a-z][a-z0-9+.-]{1,15}://)[^\s\"<>@]*@(?:[^\s\"<>@/]*@)*", re.IGNORECASE
)
"""User and password of an address: whatever stands before its last @, brackets, quotes and slashes included."""
_REQUEST_LINE = re.compile(
    r"\b(?P<method>GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|WebSocket) (?P<path>/[^\s?\"]*)(?P<query>\?[^\s\"]*)?"
)
"""A request as an access log writes it, without the address that would make it a URL."""
_PLAIN_SEGMENT = re.compile(r"|v\d+|-|[a-z][a-z_.-]{0,31}")
"""A part of a path that a program has: ids and names have digits or capitals, or are long."""
_MAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]+@(?!\w+\.(?:service|socket|slice|timer|mount|device|target|scope|path)\b)[\w-]+(?:\.[\w-]+)+"
)
"""A mailbox; an instance of a systemd unit is none."""
_QUERY = re.compile(r"(?P<lead>[?&])(?P<name>[\w.\[\]%-]+)=(?P<value>[^&\s\"'<>`\\)\]}|#]*)")
_TOKEN_SEGMENT = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[\w.~%:+=-]{12,}|[A-Za-z0-9_-]{24,}")
_HOOKS = re.compile(
    r"/(?:hooks?|services|webhooks?|webhookb2|incomingwebhook|robot|bot|ping|integration|enqueue)(?:/|$)",
    re.IGNORECASE,
)

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bDigest\s+[^\r\n]*", re.IGNORECASE), f"Digest {GONE}"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), GONE),
    (
        re.compile(
            rf"(\b[\w.-]*(?:{_KEY}|authorization|cookie)(?![\w.-]*(?:file|path|dir)\b)[\w.-]*)(\\?[\"']?\s*[:=]>?\s*)"
            rf"(?:{_LIST}|{_MAPPING})",
            re.IGNORECASE,
        ),
        rf"\1\2{GONE}",
    ),
    # A YAML text of several lines.
    (re.compile(rf"(\b[\w.-]*{_KEY}[\w.-]*\s*:\s*)(?:!\S+ )?[>|][+-]?[ \t]*(?:\r?\n[ \t]+[^\r\n]*)+", re.IGNORECASE), rf"\1{GONE}"),
    # bcrypt and the other hashes of crypt(5).
    (re.compile(r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{20,}|\$(?:1|5|6|7|y|gy|argon2\w*|scrypt)\$[^\s\"':]{8,}"), GONE),
    (
        re.compile(
            r"\b((?:proxy-)?authorization|x-[\w-]+|api-key|(?:set-)?cookie)"
            r"(\\?[\"']?\s*[:=,]\s*\\?[b\"']{0,2})[^\r\n\"'\\]+",
            re.IGNORECASE,
        ),
        rf"\1\2{GONE}",
    ),
    (re.compile(r"\b(Bearer|Basic|Digest)\s+[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE), rf"\1 {GONE}"),
    (re.compile(r"\beyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?"), GONE),
    (
        re.compile(
            r"\b(?:sk-|pk-|rk_|sk_|hf_|gh[opsu]_|github_pat_|npm_|AIza|glpat-|gls?a_|glc_|xox[abeprs]-|AKIA|SEC(?=[0-9a-f]{16}))[\w-]{8,}"
        ),
        GONE,
    ),
    # A flag may take several: all words up to the next flag go.
    (re.compile(rf"(--[\w-]*(?:{_NAME}|key)(?!-?file)[\w-]*(?:\s+|=))(?:(?!-)(?:\"[^\"]*\"|'[^']*'|[^\s\"']+)\s*)+(?=\s|$|-|\"|')", re.IGNORECASE), rf"\1{GONE} "),
    (re.compile(r"(\bsshpass\s+-p\s*|\bmy\w*sql\w*\s[^\r\n]*?\s-p)[^\s\"']+"), rf"\1{GONE}"),
    (re.compile(r"(\s(?:-u|--user|--proxy-user)[\s=]+)(?:\"[^\"]*\"|'[^']*'|[^\s\"']+)"), rf"\1{GONE}"),
    (
        re.compile(
            rf"(\b[\w.-]*{_KEY}(?![\w.-]*(?:file|path|dir)\b)[\w.-]*)(\\?[\"']?\s*[:=]>?\s*)"
            r"(\\?\"(?:[^\"\\\r\n]|\\[^\"\r\n])*|'[^'\r\n]*|[^\s\"',;&})\]\\]+)",
            re.IGNORECASE,
        ),
        rf"\1\2{GONE}",
    ),
    (re.compile(r"\b(pwd|sid|otp)(\s*[:=]>?\s*)[^\s\"',;&]+", re.IGNORECASE), rf"\1\2{GONE}"),
    # In a sentence: "password for user x: …", "the passphrase is …".
    (re.compile(r"(\b(?:pass(?:word|wd|phrase|code)|secret|(?:api|access|licen[cs]e)[ _-]?key)\b(?: [\w.@-]+){0,5}?(?:\s*[:=]>?\s+[\"']?| is\s+(?=\S*[\d_-])))(?!<)[^\s\"']+", re.IGNORECASE), rf"\1{GONE}"),
    (re.compile(rf"(<[\w:]*{_NAME}[^<>]*>)[^<]+", re.IGNORECASE), rf"\1{GONE}"),
    # A stream's id is as good as a key, also where a client puts it into a URL that no server takes.
    (re.compile(r"(/v1/resume/)[\w-]+"), rf"\1{GONE}"),
    (re.compile(r"\b(ssh-[a-z0-9]+|ecdsa-[\w-]+) [\w+/=-]{16,}(?: [\w.@-]+)?"), rf"\1 {GONE}"),
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z0-9_-]{20,}")
_RUN = re.compile(r"[A-Za-z0-9]{10,}")
_HEX = re.compile(r"(?<![A-Za-z0-9])(?!0x)(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{16,}(?![A-Za-z0-9])")
_CHANGE = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
RANDOM_CHANGES = 0.45
"""Least share of neighbours of another kind (capital, small, digit) for which a run of letters and digits is a key.

The share is 0.62 in random runs, and up to 0.4 where words are written together."""
_NAMED = re.compile(
    r"(?:token|key|password|secret|session|stream|id|value|code|verifier|authenticate|response|nonce|hook|redacted)[^\w\r\n]{1,6}$",
    re.IGNORECASE,
)
"""What says of the next word that it is a token or an id."""
_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])")
_SPOKEN = re.compile(
    r"(\b(?:prompt|prompts|messages|transcript|transcription|delta|utterance|user_text|input_text|content|inputs|generated_text"
    r"|asr result|user said|recogni[sz]ed(?: text)?|query(?==[\"']))\b\\?[\"']?\s*[:=]).*",
    re.IGNORECASE | re.DOTALL,
)
SPOKEN = "<what was said is left out>"


class Redactor:
    """Takes secrets out of text. `known` are secrets by their value: they go wherever they stand, encoded or not."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {
            form for secret in known if len(secret) >= SHORTEST for form in (secret, quote(secret, safe=""))
        }
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        if self._known:
            text = self._known.sub(GONE, text)
        text = _USERINFO.sub(rf"\g<scheme>{GONE}@", text)
        text = _URL.sub(_address, text)
        text = _REQUEST_LINE.sub(_requested, text)
        text = _MAIL.sub(GONE, text)
        text = _QUERY.sub(_argument, text)
        for pattern, instead in _RULES:
            text = pattern.sub(instead, text)
        return _HEX.sub(GONE, _WORD.sub(_opaque, text))


def _opaque(found: re.Match[str]) -> str:
    """A long word, unless it is made at random: tokens and ids are, whatever stands around them."""
    word, before = found[0], found.string[max(0, found.start() - 24) : found.start()]
    is_random = (_NAMED.search(before) and _MIXED.match(word)) or any(
        len(_CHANGE.findall(run)) >= RANDOM_CHANGES * (len(run) - 1) for run in _RUN.findall(word)
    )
    return GONE if is_random else word


SAFE_FIELDS = frozenset({
    "alertname", "dtype", "error", "ev", "event", "finish_reason", "format", "kind", "level", "levelname", "logger", "lvl", "method",
    "modality", "msg", "object", "outcome", "quantization", "reason", "result", "role", "severity", "source", "stage", "state",
    "status", "time", "timestamp", "ts", "type", "unit", "vantage", "version",
})  # fmt: skip
"""Fields of a structured log line whose text is the program's own. Of all others only numbers stay."""
_FIELD = re.compile(
    r"""(?P<head>(?P<escape>\\*)(?P<quote>["'])(?P<name>[\w.-]{1,64})(?P=escape)(?P=quote)\s*:\s*)"""
    r"""(?P<value>(?P=escape)"(?:[^"\\\r\n]|\\(?!(?P=escape)").)*"?|(?P=escape)'(?:[^'\\\r\n]|\\.)*'?)""",
)


def safe_fields(text: str) -> str:
    """Keep of the quoted fields in a log line (JSON, Python) only the text of those that are known to be safe."""
    return _FIELD.sub(
        lambda found: found[0] if found["name"].lower() in SAFE_FIELDS else f"{found['head']}{GONE}", text
    )


def unspoken(text: str) -> str:
    """Cut a log line where a user's words begin."""
    return _SPOKEN.sub(rf"\1 {SPOKEN}", text)


def pieces(address: str) -> Iterator[str]:
    """Yield the parts of an address that are secrets where it is one: its last path segments, its query's values."""
    parts = urlsplit(address.strip())
    yield address.strip()
    yield from (segment for segment in parts.path.split("/") if len(segment) >= 8)
    yield from (value for item in parts.query.split("&") if (value := item.partition("=")[2]))
    yield from (word for word in (parts.username, parts.password) if word)


def scrubbed(value: Any, name: str = "", *, known_shape: bool = True) -> Any:
    """Return a configuration's value without its secrets, by the names of its settings.

    Where it is not known to be of the right shape, only numbers and the names of settings stay.
    """
    if isinstance(value, dict):
        return {str(key): scrubbed(item, str(key), known_shape=known_shape) for key, item in value.items()}
    if isinstance(value, list):
        return [scrubbed(item, name, known_shape=known_shape) for item in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if name.endswith(("_file", "_path", "_dir")) and known_shape:
        return value
    if SECRET_NAME.search(name) or name in ("mention", "email_to"):
        return GONE
    if isinstance(value, (int, float)):
        return value
    if not known_shape:
        return "<text>"
    if name.endswith("webhook_url"):
        return _origin(str(value))
    return value


def _origin(address: str) -> str:
    parts = urlsplit(address)
    here = (parts.hostname or "") in ("127.0.0.1", "localhost", "::1")
    return address if here else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{GONE}"


def _address(found: re.Match[str]) -> str:
    """An address without user, password and what may be a token in its path; its query is the next rule's."""
    rest = found["rest"]
    authority, slash, tail = rest.partition("/")
    path, mark, query = tail.partition("?")
    if _HOOKS.search(f"/{path}"):
        path = GONE
    else:
        path = "/".join(GONE if _TOKEN_SEGMENT.fullmatch(segment) else segment for segment in path.split("/"))
    return f"{found['scheme']}://{authority}{slash}{path}{mark}{query}"


def _requested(found: re.Match[str]) -> str:
    segments = (part if _PLAIN_SEGMENT.fullmatch(part) else GONE for part in found["path"].split("/"))
    return f"{found['method']} {'/'.join(segments)}{found['query'] or ''}"


def _argument(found: re.Match[str]) -> str:
    value = found["value"] if _HARMLESS.fullmatch(found["name"]) else GONE
    return f"{found['lead']}{found['name']}={value}"
