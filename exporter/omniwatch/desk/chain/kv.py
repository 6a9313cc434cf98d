"""Read from vLLM's own metrics how full the KV cache was and how large it is. Pure but for the one request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from omniwatch.desk.chain import Chain, Kv
from omniwatch.system import sysfs

PERIOD_S = 0.5


def read(text: str) -> tuple[float | None, int | None]:
    """Return the fullest stage's share in use, and the bytes of all caches; None for what the text does not say."""
    share: float | None = None
    sizes: list[int | None] = []
    for family in text_string_to_metric_families(text):
        if family.name == "vllm:kv_cache_usage_perc":
            share = max([sample.value for sample in family.samples], default=None)
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
        with contextlib.suppress(httpx.HTTPError, ValueError):
            answer = await self.client.get(f"{url}/metrics", timeout=2.0)
            share, size = read(answer.text) if answer.status_code == 200 else (None, None)
            if share is not None:
                before = self.found.get((chain, url))
                most = max(share, before.used_share if before else 0.0)
                self.found[chain, url] = Kv(chain=chain, url=url, used_share=most, cache_bytes=size)
                return True
        return False

    def unused(self, chain: Chain) -> int | None:
        """Return the bytes of a chain's caches that were never used; None where a server states no size.

        A chain without any such server keeps no KV cache that is known of: 0 cannot be claimed, so None.
        """
        own = [kv for (of, _), kv in self.found.items() if of == chain]
        if not own or any(kv.cache_bytes is None for kv in own):
            return None
        return sum(round((kv.cache_bytes or 0) * (1 - kv.used_share)) for kv in own)
