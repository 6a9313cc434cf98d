"""Talk to a realtime server as LiveKit does: ask, then speak, and speak up in the answer. PORT; prints the bytes heard.

Run by the environment of that client.
"""

import asyncio
import sys

from livekit import rtc
from livekit.plugins.openai import realtime

SPEAKS_UP_S = 0.3


async def main(port: int) -> None:
    model = realtime.RealtimeModel(api_key="key", base_url=f"http://127.0.0.1:{port}/v1")
    session = model.session()
    size_bytes = 0
    chunks: asyncio.Queue[str] = asyncio.Queue()
    ends: asyncio.Queue[str] = asyncio.Queue()
    listening = []
    answer = ""

    async def listen(generation) -> None:
        nonlocal size_bytes
        async for message in generation.message_stream:
            async for frame in message.audio_stream:
                size_bytes += len(frame.data.tobytes())
                chunks.put_nowait(message.message_id)
        ends.put_nowait(generation.response_id)

    def give_way(_) -> None:
        """Do what an agent does when the user speaks up."""
        if answer:
            session.interrupt()
            heard_ms = round(SPEAKS_UP_S * 1000)
            session.truncate(message_id=answer, modalities=["audio", "text"], audio_end_ms=heard_ms)

    def speak() -> None:
        samples = 2400
        session.push_audio(
            rtc.AudioFrame(
                data=bytes(2 * samples), sample_rate=24_000, num_channels=1, samples_per_channel=samples
            )
        )

    session.on("generation_created", lambda one: listening.append(asyncio.ensure_future(listen(one))))
    session.on("input_speech_started", give_way)
    asking = session.generate_reply()
    # The server does not say whose request it answers.
    asking.add_done_callback(lambda done: done.cancelled() or done.exception())
    first = await chunks.get()
    await ends.get()
    speak()
    while (answer := await chunks.get()) == first:
        pass
    await asyncio.sleep(SPEAKS_UP_S)
    speak()
    # Of the answer that is broken off, and of the one after it.
    for _ in range(2):
        await ends.get()
    await session.aclose()
    await model.aclose()
    sys.stdout.write(f"{size_bytes}\n")


asyncio.run(asyncio.wait_for(main(int(sys.argv[1])), 60))
