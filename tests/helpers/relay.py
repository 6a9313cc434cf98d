"""A TCP relay in user space that delays each direction and can cut what it carries.

It ends TCP at both its sides: what it delays is the data, and the kernels' own round-trip times stay those of the
loopback, as behind any proxy. For a delay that TCP itself feels see delay_link.py.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from types import TracebackType

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Relay:
    """Carries connections to `host`:`port` while the context lasts; clients connect to 127.0.0.1:`port`.

    `up_ms` delays what clients send, `down_ms` what they receive.
    """

    def __init__(self, port: int, host: str = "127.0.0.1", up_ms: float = 0.0, down_ms: float = 0.0) -> None:
        self._target = (host, port)
        self._delays_s = (up_ms / 1000.0, down_ms / 1000.0)
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        start = asyncio.start_server(self._relay, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def cut(self) -> None:
        """Reset every connection carried now, at both sides; new ones are carried as before."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self.cut()
        asyncio.run_coroutine_threadsafe(self._drain(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cut(self) -> None:
        while self._writers:
            writer = self._writers.pop()
            carried = writer.get_extra_info("socket")
            if carried.fileno() >= 0:
                carried.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                writer.transport.abort()

    async def _drain(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        up, down = self._delays_s
        await asyncio.gather(_pump(reader, far_writer, up), _pump(far_reader, writer, down))
        self._writers -= {writer, far_writer}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Carry one direction until its end, and pass the end on."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def send() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                writer.close()
                return
            writer.write(data)

    sender = asyncio.ensure_future(send())
    data = b"-"
    while data:
        try:
            data = await reader.read(65536)
        except OSError:
            data = b""
        queue.put_nowait((loop.time() + delay_s, data))
    await sender
