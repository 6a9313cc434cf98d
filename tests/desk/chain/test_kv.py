"""How full the KV cache was: servers that are asked while they are measured, and what is made of their answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import httpx
import pytest

from omniwatch.desk.chain import Chain
from omniwatch.desk.chain import kv as kv_module
from omniwatch.desk.chain.kv import KvWatch

NATIVE, OTHER, MUTE, ODD = (f"http://127.0.0.1:{port}" for port in (8091, 8092, 8093, 8094))


def metrics(share: float, size: str = "1000") -> str:
    return (
        "# TYPE vllm:kv_cache_usage_perc gauge\n"
        f'vllm:kv_cache_usage_perc{{stage="0"}} {share}\n'
        "# TYPE vllm:cache_config_info gauge\n"
        f'vllm:cache_config_info{{kv_cache_memory_bytes="{size}"}} 1\n'
    )


def watched(
    asked: list[tuple[Chain, str]], answers: dict[str, list[httpx.Response | Exception]]
) -> tuple[KvWatch, list[str]]:
    """Watch until every answer has been given."""
    looked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        url = f"{request.url.scheme}://{request.url.netloc.decode()}"
        assert request.url.path == "/metrics"
        looked.append(url)
        given = answers[url].pop(0) if len(answers[url]) > 1 else answers[url][0]
        if isinstance(given, Exception):
            raise given
        return given

    async def main() -> KvWatch:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            found = KvWatch(client, asked)
            watching = asyncio.ensure_future(found.run())
            while any(len(left) > 1 for left in answers.values()) and not watching.done():
                await asyncio.sleep(0)
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            return found

    return asyncio.run(main()), looked


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_module, "PERIOD_S", 0)


def test_the_fullest_moment_counts_and_what_was_never_used_is_the_rest() -> None:
    shares = [httpx.Response(200, text=metrics(share)) for share in (0.1, 0.4, 0.2, 0.2)]
    found, _ = watched([("native", NATIVE)], {NATIVE: shares})
    assert found.found["native", NATIVE].used_share == 0.4
    assert found.unused("native") == 600
    assert found.unused("cascade") is None, "a chain that nobody was asked of"


def test_a_server_without_the_metrics_is_asked_once() -> None:
    answers: dict[str, list[httpx.Response | Exception]] = {
        NATIVE: [httpx.Response(200, text=metrics(0.5))] * 5,
        OTHER: [httpx.Response(404)],
        MUTE: [httpx.ConnectError("refused")],
        ODD: [httpx.Response(200, text="what {")],
    }
    found, looked = watched([("cascade", url) for url in answers], answers)
    assert set(found.found) == {("cascade", NATIVE)}
    assert [looked.count(url) for url in (OTHER, MUTE, ODD)] == [1, 1, 1]
    assert looked.count(NATIVE) > 1


def test_where_one_server_states_no_size_nothing_is_claimed() -> None:
    answers: dict[str, list[httpx.Response | Exception]] = {
        NATIVE: [httpx.Response(200, text=metrics(0.5))] * 3,
        OTHER: [httpx.Response(200, text=metrics(0.5, "None"))] * 3,
    }
    found, _ = watched([("cascade", NATIVE), ("cascade", OTHER)], answers)
    assert len(found.found) == 2
    assert found.unused("cascade") is None
