"""The real cascade as three child processes, and questions spoken by espeak-ng."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omniwatch.desk.child_process import ChildProcess, free_port, program
from suites.chain.installation import directory, install

SERVERS = Path(__file__).with_name("servers.py")
SAID = {
    "park": "Where can I park my car near the station?",
    "spring": "What is the weather like in spring?",
    "tea": "How do I make a cup of tea?",
    "sky": "Why is the sky blue?",
}
"""What tiny.en understands in espeak's voice."""
SHORT = '{"max_tokens": 32}'
"""Bounds an answer of the LLM: two sentences or so."""
START_S = 120.0
"""Seconds that models may take to load, on a busy machine too."""


def speak_questions(folder: Path) -> Path:
    """Write each question as a WAV file with its text beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in SAID.items():
        wav = folder / f"{name}.wav"
        subprocess.run([program("espeak-ng"), "-v", "en-us", "-s", "150", "-w", str(wav), words], check=True)
        wav.with_suffix(".txt").write_text(words)
    return folder


@contextmanager
def cascade(logs: Path) -> Iterator[dict[str, ChildProcess]]:
    """Install if need be and start ASR, LLM and TTS; each is ready when the context begins."""
    python = install(directory())
    logs.mkdir(parents=True, exist_ok=True)
    started: dict[str, ChildProcess] = {}
    try:
        for part in ("asr", "llm", "tts"):
            port = free_port()
            argv = [str(python), str(SERVERS), part, str(port)]
            started[part] = ChildProcess(part, argv, logs, f"http://127.0.0.1:{port}")
        for server in started.values():
            server.await_ready("/v1/models", START_S)
        yield started
    finally:
        for server in started.values():
            server.stop()
