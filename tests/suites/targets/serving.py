"""Serve a recording by the sidecar until all of it is counted, and print what was: `serving.py RECORDING OMNIWATCH`.

Standard library only.
"""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import sys
import time
import urllib.request

WITHIN_S = 600.0
OF_THE_RECORDING = re.compile(r"omni_\w+_(total|bucket|count|sum)\W")
"""What goes on counting. A gauge also says how long ago things were."""


def counted(address: str) -> str:
    """What /metrics shows; "" while nothing answers."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return ""


def main(recording: str, omniwatch: str) -> None:
    """Print the counters in the order of /metrics. Exits with a line where it takes too long."""
    with open(recording, "rb") as file:  # noqa: PTH123 -- one way for all Pythons of a device
        events = sum(1 for _ in file)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = [f"--web.listen-address={address}", "--config.file=/dev/null"]
    server = subprocess.Popen([omniwatch, "exporter", f"tail:{recording}", *flags])
    try:
        end = time.monotonic() + WITHIN_S
        text = ""
        while (
            sum(map(float, re.findall(r"^omniwatch_events_total(?:{.*})? (\S+)$", text, re.MULTILINE)))
            < events
        ):
            if time.monotonic() > end:
                sys.exit(f"not all of {events} events within {WITHIN_S:g} s")
            time.sleep(0.2)
            text = counted(address)
    finally:
        server.terminate()
        server.wait()
    sys.stdout.writelines(f"{line}\n" for line in text.splitlines() if OF_THE_RECORDING.match(line))


main(*sys.argv[1:])
