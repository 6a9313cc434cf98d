"""A Prometheus query API that answers what a test wants."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs

from omniwatch.centre.query import Sample

NOW = 1_800_000_000.0


@contextmanager
def centre(
    answers: dict[str, list[Sample]] | None = None,
    code: int = 200,
    body: bytes | None = None,
    encoding: str = "identity",
) -> Iterator[tuple[str, list]]:
    """Serve a query API that has these answers, or always this body; yield its address and the requests it got."""
    requests: list = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            requests.append((self.path, dict(self.headers), form))
            found = (answers or {}).get(form["query"][0], [])
            result = [{"metric": labels, "value": [NOW, str(value)]} for labels, value in found]
            text = json.dumps(
                {"status": "success", "data": {"resultType": "vector", "result": result}}
            ).encode()
            self.send_response(code)
            self.send_header("Transfer-Encoding", encoding)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(text if body is None else body)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        server.shutdown()
        server.server_close()
