"""Report a client's measurement to the tap: `POST /omniwatch/report`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

from omniwatch.desk.probe.target import Target
from omniwatch.system import http
from omniwatch.system.terminal import one_line

PATH = "/omniwatch/report"
STREAM_HEADER = "X-Omniwatch-Stream"
"""In the answer to a chat request or a websocket's handshake: the id to report under."""
TIMEOUT_S = 5.0


class Reporter:
    """Posts each turn's first-speech time beside the listening. `error` says why the last report did not arrive.

    The turn is not named: the tap takes the stream's latest, and only it knows by which name.
    """

    def __init__(self, target: Target, headers: Mapping[str, str]) -> None:
        self._target = target
        self._headers = {**headers, "Content-Type": "application/json"}
        self._posting: threading.Thread | None = None
        self.sent = 0
        self.error: str | None = None

    def start(self, stream: str | None, rtt_ms: float) -> None:
        """Post a measurement of a stream; without its id there is nobody to tell."""
        if stream is None:
            self.error = f"the server gave no {STREAM_HEADER}: is the tap installed there?"
            return
        self.error = None
        self._posting = threading.Thread(target=self._post, args=(stream, rtt_ms), daemon=True)
        self._posting.start()

    def finish(self) -> None:
        """Wait until the report has arrived, or failed to."""
        if self._posting is not None:
            self._posting.join()
            self._posting = None

    def _post(self, stream: str, rtt_ms: float) -> None:
        body = json.dumps({"stream": stream, "rtt_ms": round(rtt_ms, 3)}).encode()
        try:
            with http.ask(
                self._target.base + PATH, timeout_s=TIMEOUT_S, body=body, headers=self._headers
            ) as answer:
                if answer.status == 204:
                    self.sent += 1
                    return
                why = answer.read(200, cut=True).decode("utf-8", "replace")
                self.error = f"POST {PATH}: {answer.status} {one_line(why or answer.reason)}"
        except http.HttpError as error:
            self.error = f"POST {PATH}: {error}"
