"""Talk to a realtime server as Pipecat does: ask, then speak, and speak up in the answer. PORT; prints the bytes heard.

Run by the environment of that client.
"""

import asyncio
import sys
import time

from pipecat.frames.frames import (
    EndFrame,
    InputAudioRawFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

SPEAKS_UP_S = 0.3


class Ear(FrameProcessor):
    """Hears what the service says."""

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0
        self.chunks: asyncio.Queue[float] = asyncio.Queue()
        self.ends: asyncio.Queue[float] = asyncio.Queue()

    async def process_frame(self, frame, direction) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.size_bytes += len(frame.audio)
            self.chunks.put_nowait(time.monotonic())
        elif isinstance(frame, LLMFullResponseEndFrame):
            self.ends.put_nowait(time.monotonic())
        await self.push_frame(frame, direction)


async def main(port: int) -> None:
    service = OpenAIRealtimeLLMService(api_key="key", base_url=f"ws://127.0.0.1:{port}/v1/realtime")
    ear = Ear()
    task = PipelineTask(Pipeline([service, ear]), cancel_on_idle_timeout=False)
    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
    speech = InputAudioRawFrame(audio=bytes(4800), sample_rate=24_000, num_channels=1)
    await task.queue_frame(LLMContextFrame(context=LLMContext([{"role": "user", "content": "hello"}])))
    asked_t = await ear.ends.get()
    await task.queue_frame(speech)
    while await ear.chunks.get() < asked_t:
        pass
    await asyncio.sleep(SPEAKS_UP_S)
    await task.queue_frame(speech)
    # Of the answer that is broken off, and of the one after it.
    for _ in range(2):
        await ear.ends.get()
    await task.queue_frame(EndFrame())
    await running
    sys.stdout.write(f"{ear.size_bytes}\n")


asyncio.run(asyncio.wait_for(main(int(sys.argv[1])), 60))
