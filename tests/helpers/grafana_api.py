"""A stand-in for Grafana's HTTP API: folders, dashboards with versions and conflicts, as its documentation says."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TOKEN = "glsa_secret"
Answer = tuple[int, Any]


class FakeGrafana:
    """What is stored: folders by uid, and each dashboard's versions, oldest first."""

    def __init__(self) -> None:
        self.url = ""
        self.folders: dict[str, str] = {}
        self.saves: dict[str, list[dict[str, Any]]] = {}
        self.writes = 0
        self.broken: Answer | None = None
        """What every request is answered with instead."""
        self.meanwhile: list[Any] = []
        """What happens once, just before the next dashboard is saved."""

    def save(self, model: dict[str, Any], message: str = "", by: str = "alice", folder: str = "") -> int:
        """Keep a new version, as the browser's save does."""
        versions = self.saves.setdefault(model["uid"], [])
        number = len(versions) + 1
        stored = {**model, "id": 7, "version": number}
        versions.append({"model": stored, "message": message, "by": by, "folder": folder})
        return number

    def newest(self, uid: str) -> dict[str, Any]:
        return self.saves[uid][-1]

    def answer(self, method: str, path: str, body: Any) -> Answer:
        if self.broken is not None:
            return self.broken
        parts = path.partition("?")[0].strip("/").split("/")
        match (method, parts):
            case ("GET", ["api", "folders"]):
                return 200, [{"uid": uid, "title": title} for uid, title in self.folders.items()]
            case ("POST", ["api", "folders"]):
                uid = f"folder-{len(self.folders)}"
                self.folders[uid] = body["title"]
                return 200, {"uid": uid, "title": body["title"]}
            case ("GET", ["api", "dashboards", "uid", uid]) if uid in self.saves:
                newest = self.newest(uid)
                meta = {
                    "updatedBy": newest["by"],
                    "updated": "2026-01-02T03:04:05Z",
                    "folderUid": newest["folder"],
                }
                return 200, {"dashboard": newest["model"], "meta": meta}
            case ("GET", ["api", "dashboards", "uid", uid, "versions", number]) if uid in self.saves:
                kept = self.saves[uid][int(number) - 1]
                return 200, {"version": int(number), "message": kept["message"], "data": kept["model"]}
            case ("POST", ["api", "dashboards", "db"]):
                return self._saved(body)
        return 404, {"message": "Dashboard not found"}

    def _saved(self, body: dict[str, Any]) -> Answer:
        if self.meanwhile:
            self.meanwhile.pop()()
        model = body["dashboard"]
        if body.get("folderUid") not in self.folders:
            return 400, {"message": "folder not found"}
        now = len(self.saves.get(model["uid"], []))
        if not body.get("overwrite") and model.get("version", 0) != now:
            return 412, {
                "message": "The dashboard has been changed by someone else",
                "status": "version-mismatch",
            }
        self.writes += 1
        number = self.save(model, body.get("message", ""), "omniwatch", body["folderUid"])
        return 200, {"uid": model["uid"], "version": number, "status": "success"}


@contextmanager
def grafana(prefix: str = "") -> Iterator[FakeGrafana]:
    """Serve one on a free port, below `prefix`; without the right token it refuses."""
    fake = FakeGrafana()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = 404, {"message": "not below the prefix"}
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, answer = 401, {"message": "Invalid API key"}
            elif self.path.startswith(f"{prefix}/api/"):
                status, answer = fake.answer(self.command, self.path.removeprefix(prefix), body)
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}{prefix}"
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
