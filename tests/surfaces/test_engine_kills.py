"""The same promises over real sockets: real engines, and servers that are killed and come again."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import socketio
from socketio.exceptions import SocketIOError

from detent import stores
from detent.engine_client import EngineClient, JobFault, PushedJob
from detent.stores.select import Filter, Page
from tests.surfaces.engines import sever
from tests.surfaces.guarantees import LETTERS, Told, need_life
from tests.surfaces.test_http_server import served
from tests.waiting import until

WAVES: Final = 3
JOBS: Final = 80
ENDS: Final = ("JOB_COMPLETED", "JOB_FAILED")


async def spent(seconds: float) -> None:
    """What a job takes, or nobody is asked for so long; nothing is waited for like this."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


class Listener:
    """Hears of all jobs; after a broken connection from the last cursor that it has heard."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.heard: defaultdict[str, list[Told]] = defaultdict(list)
        self.cursor = 0
        self.connections = 0

    @property
    def ended(self) -> int:
        return sum(told[-1].name in ENDS for told in self.heard.values())

    def hear(self, name: str, data: dict[str, Any]) -> None:
        self.heard[data["jobId"]].append(Told(name, data))
        self.cursor = data["cursor"]

    async def run(self) -> None:
        while True:
            sio, gone = socketio.AsyncClient(reconnection=False), asyncio.Event()
            for name in LETTERS:
                sio.on(name, self._hearing(name), namespace="/events")
            sio.on("disconnect", lambda *_, gone=gone: gone.set(), namespace="/events")
            with suppress(SocketIOError, TimeoutError):
                await sio.connect(self._url, namespaces=["/events"], transports=["websocket"])
                told = {"after": self.cursor, "names": "new"}
                await sio.call("subscribe", told, namespace="/events", timeout=5)
                self.connections += 1
                await gone.wait()
            await sio.disconnect()
            await spent(0.05)

    def _hearing(self, name: str) -> Any:
        async def heard(data: dict[str, Any]) -> None:
            self.hear(name, data)

        return heard


def engine(url: str, number: int) -> EngineClient:
    """One that does most of its jobs, and the others badly, or not in time."""
    made = EngineClient(url, f"engine-{number}", capacity=8, slots=6)
    chance = random.Random(number)

    @made.handles("WORK")
    async def work(job: PushedJob) -> dict[str, int]:
        dice = chance.random()
        await job.progress(round(dice * 100))
        if dice < 0.15:
            raise JobFault("BAD_ASSET", "texture.png")
        # Some are longer than they may be.
        await spent(chance.choice((0, 0.01, 0.1, 0.4)) if dice < 0.9 else 5)
        return {"attempt": job.attempt}

    return made


@asynccontextmanager
async def alive(*works: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def submit(url: str, count: int, chance: random.Random) -> None:
    """New jobs; whoever hears nothing does not know whether it is one."""
    async with httpx.AsyncClient(base_url=url, timeout=5) as client:
        for _ in range(count):
            spans = {"queued": 30_000, "dispatched": 3_000, "running": 1_500}
            told = {"jobType": "WORK", "maxAttempts": chance.choice((1, 2, 3)), "deadlines": spans}
            with suppress(httpx.TransportError):
                (await client.post("/engine/jobs", json=told)).raise_for_status()


class Storm:
    """Waves of jobs; in the middle of each but the last the server is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chance = random.Random(3)
        self.port = 0
        self.listener = Listener("")
        self.engines: list[EngineClient] = []

    async def run(self) -> Listener:
        async with AsyncExitStack() as stack:
            for wave in range(WAVES):
                options = ("--port", str(self.port)) if self.port else ()
                log = self.folder / f"log{wave}"
                with served(store_of(self.folder), log, *options) as (process, self.port):
                    await self._wave(stack, is_last=wave == WAVES - 1)
                    process.kill()
        return self.listener

    async def _wave(self, stack: AsyncExitStack, *, is_last: bool) -> None:
        url = f"http://127.0.0.1:{self.port}"
        if not self.engines:
            self.engines = [engine(url, number) for number in range(3)]
            self.listener = Listener(url)
            works = [one.run() for one in self.engines]
            await stack.enter_async_context(alive(self.listener.run(), *works))
        await until(lambda: all(one.is_connected for one in self.engines), "engines are back")
        enough = self.listener.ended + JOBS // 3
        submitting = asyncio.create_task(submit(url, JOBS, self.chance))
        await until(lambda: self.listener.ended > enough, "a part has ended")
        await sever(self.chance.choice(self.engines))
        if is_last:
            await submitting
            await until(self._is_over, "all have ended")
        else:
            stack.push_async_callback(asyncio.gather, submitting)

    async def _is_over(self) -> bool:
        """Whether all that is stored was heard of to its end, and nobody has anything in hand."""
        heard = self.listener.heard
        if self.listener.ended < len(heard) or any(one.jobs for one in self.engines):
            return False
        return heard.keys() == (await kept(self.folder)).keys()


def store_of(folder: Path) -> str:
    return f"sqlite:///{folder}/detent.db"


async def kept(folder: Path) -> dict[str, str]:
    """All jobs there are, and where they stand."""
    async with stores.open(store_of(folder)) as store:
        found = await store.find(Filter(), Page(WAVES * JOBS + 1))
        return {one.job.id: one.job.state.value for one in found}


@pytest.mark.slow
def test_telemetry_guarantees_over_servers_that_are_killed(tmp_path: Path) -> None:
    listener = asyncio.run(Storm(tmp_path).run())
    states = asyncio.run(kept(tmp_path))
    assert listener.connections >= WAVES
    assert len(states) > WAVES * JOBS // 2
    assert listener.heard.keys() == states.keys()
    lives = {name: need_life(told) for name, told in listener.heard.items()}
    ends = {"C": {"completed"}, "F": {"discarded", "cancelled"}}
    for name, letters in lives.items():
        assert states[name] in ends[letters[-1]]
    seen = "".join(lives.values())
    assert all(letter in seen for letter in "QDRTCF")
