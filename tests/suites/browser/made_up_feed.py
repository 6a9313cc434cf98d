"""A feed by the page's own clock, for hours that pass in seconds: what a page keeps must not grow with them."""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import parse_qs, urlsplit

WINDOW = 900
RULES = [
    {"name": "CodecDrift", "of": "drift", "threshold": 60, "for_s": 15},
    {"name": "TokenRTT", "of": "rtt", "threshold": 800, "for_s": 20},
]
BAD_EACH_S = 20


class MadeUpFeed:
    """Answers for /live.json in a page whose clock began at `start_t` and is set forward by `pass_second`."""

    def __init__(self, page: Any, start_t: int, listeners: int = 2) -> None:
        self.asked = 0
        self._page, self._start_t, self._listeners = page, start_t, listeners
        self._passed = 0
        page.route("**/live.json*", self._answer)

    def pass_second(self) -> None:
        self._passed += 1
        self._page.clock.run_for(1000)

    def _answer(self, route: Any) -> None:
        self.asked += 1
        since = parse_qs(urlsplit(route.request.url).query).get("since", [""])[0]
        route.fulfill(content_type="application/json", body=json.dumps(self._news(since)))

    def _news(self, since: str) -> dict[str, Any]:
        end = WINDOW + self._passed
        first = int(since.partition(".")[2]) if since else end - WINDOW
        now = self._start_t + end
        slots = range(self._listeners)
        bad = [n for n in range(max(0, end - 3600) if not since else first, end) if n % BAD_EACH_S == 0]
        return {
            "schema": 1, "run": "a", "cursor": f"a.{end}", "reset": not since, "now": now, "version": "0",
            "device_name": "orin", "more": 0, "turns_judged": end, "device": {"gpu_load": end % 100 / 100},
            "state": {"key": "well", "level": "well", "arguments": {"count": self._listeners}, "since": None},
            "rules": RULES,
            "history": {
                "step": 1, "first": first, "start": self._start_t + first, "count": end - first,
                "columns": {
                    str(slot): {
                        "drift": [round(90 * math.sin(i / 40 + slot), 1) for i in range(first, end)],
                        "rtt": [500 + i // 7 % 5 * 100 for i in range(first, end)],
                    }
                    for slot in slots
                },
            },
            "states": [
                {"rule": "CodecDrift", "slot": 0, "state": "firing", "start": self._start_t + n, "end": self._start_t + n + 9}
                for n in bad
            ],
            "listeners": [self._listener(slot, now) for slot in slots],
            "turns": [
                {"number": n, "t": self._start_t + n, "slot": 0, "kind": None, "verdicts": [
                    {"symptom": "late", "cause": "voice", "certainty": "seen", "excess_ms": 480.0}
                ]}
                for n in bad
            ],
            "sources": [{"name": "-", "up": True, "lag_s": 0.0, "lost": 0, "invalid": 0, "error": ""}],
            "links": {"metrics": "/metrics", "streams": "/streams.json", "turns": "/turns.json", "runbooks": "/runbooks/"},
        }  # fmt: skip

    def _listener(self, slot: int, now: float) -> dict[str, Any]:
        return {
            "slot": slot, "kind": "realtime", "state": "speaking", "since": now, "drift_ms": now % 90, "slope_ppm": 1.0,
            "eta_s": now % 300, "rtt_ms": 500.0 + slot, "vantage": "client", "ear": "kernel", "underrun_s": 0.0,
            "ahead_s": 1.0, "silent_s": 0.0, "rules": {}, "suffers": None, "resume": None, "bad": None,
        }  # fmt: skip
