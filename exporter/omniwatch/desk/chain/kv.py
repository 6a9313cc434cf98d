"""Read from vLLM's own metrics how full the KV cache was and how large it is. Pure but for the one request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio
import httpx
from prometheus_client.parser import text_string_to_metric_families

from omniwatch.desk.chain import Chain, Kv
from omniwatch.system import sysfs

PERIOD_S = 0.5
LOOK_S = 2.0
"""Longest wait for a server's metrics."""
MAX_PAGE_BYTES = 4 * 2**20
"""Longest page of metrics: reading one takes time from the clients."""


def read(text: str) -> tuple[float | None, int | None]:
    """Return the fullest stage's share in use, and the bytes of all caches; None for what the text does not say."""
    share: float | None = None
    sizes: list[int | None] = []
    for family in text_string_to_metric_families(text):
        if family.name == "vllm:kv_cache_usage_perc":
            share = max((s.value for s in family.samples if 0.0 <= s.value <= 1.0), default=None)
        elif family.name == "vllm:cache_config_info":
            sizes += [sysfs.to_int(sample.labels.get("kv_cache_memory_bytes")) for sample in family.samples]
    whole = [size for size in sizes if size is not None]
    return share, sum(whole) if whole and len(whole) == len(sizes) else None


@dataclass
class KvWatch:
    """Asks servers for /metrics while they are measured. A server without them is left out."""

    client: httpx.AsyncClient
    urls: Iterable[tuple[Chain, str]]
    found: dict[tuple[Chain, str], Kv] = field(default_factory=dict)

    async def run(self) -> None:
        """Look again and again until cancelled."""
        asked = list(self.urls)
        while asked:
            # A server that does not answer so once is not asked again: each look disturbs what is measured.
            asked = [(chain, url) for chain, url in asked if await self._look(chain, url)]
            await asyncio.sleep(PERIOD_S)

    async def _look(self, chain: Chain, url: str) -> bool:
        with contextlib.suppress(httpx.HTTPError, ValueError, TimeoutError):
            with anyio.fail_after(LOOK_S):
                text = await self._page(url)
            share, size = read(text)
            if share is not None:
                before = self.found.get((chain, url))
                most = max(share, before.used_share if before else 0.0)
                self.found[chain, url] = Kv(chain=chain, url=url, used_share=most, cache_bytes=size)
                return True
        return False

    async def _page(self, url: str) -> str:
        body = bytearray()
        async with self.client.stream("GET", f"{url}/metrics") as answer:
            async for piece in answer.aiter_bytes():
                body += piece
                if answer.status_code != 200 or len(body) > MAX_PAGE_BYTES:
                    return ""
        return body.decode() if answer.status_code == 200 else ""

    def unused(self, chain: Chain) -> int | None:
        """Return the bytes of a chain's caches that were never used; None where a server states no size.

        A chain without any such server keeps no KV cache that is known of: 0 cannot be claimed, so None.
        """
        own = [kv for (of, _), kv in self.found.items() if of == chain]
        if not own or any(kv.cache_bytes is None for kv in own):
            return None
        return sum(round((kv.cache_bytes or 0) * (1 - kv.used_share)) for kv in own)
