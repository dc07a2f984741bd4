"""Topics from checks, topics that come too often, and the topics that a supervisor knows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from detent.runtime.supervisor.router import Router
from detent.runtime.supervisor.sources import changes, checks, commands, debounced, steer, ticks
from tests.runtime.supervisor.stage import Stage, VirtualClock


@pytest.mark.parametrize(
    ("every", "heard"),
    [(False, ["up", "down", "up"]), (True, ["up", "up", "down", "down", "up"])],
)
async def test_periodic_checks(every: bool, heard: list[str]) -> None:
    """W-86: first after one interval, then on a change, or each time."""
    clock = VirtualClock()
    answers = iter([True, True, False, None, True])
    told: list[str] = []

    async def check() -> bool:
        answer = next(answers)
        if answer is None:
            raise OSError("cannot be reached")
        return answer

    async def listen() -> None:
        async for topic in checks("db", check, every=every, clock=clock):
            told.append(topic)  # noqa: PERF401 - looked at on the way, not at the end

    listening = asyncio.ensure_future(listen())
    await clock.advance(29)
    assert told == []
    await clock.advance(122)
    listening.cancel()
    assert told == [f"health/db/{one}" for one in heard]


async def test_ticks_and_files_that_change(tmp_path: Path) -> None:
    """W-105."""
    clock, told, path = VirtualClock(), list[str](), tmp_path / "settings"
    router = Router()
    router.listen(ticks("slow", 5, clock))
    router.listen(changes("settings", path, clock=clock))

    async def hear(topic: str) -> None:
        told.append(topic)

    router.handle("*", hear)
    running = asyncio.ensure_future(router.run())
    await clock.advance(2)
    path.write_text("a")
    await clock.advance(2)
    path.unlink()
    await clock.advance(2)
    running.cancel()
    assert told == ["file/settings/changed", "tick/slow", "file/settings/changed"]


async def test_lines_are_commands() -> None:
    """W-105, W-108."""
    reader = asyncio.StreamReader()
    reader.feed_data(b"suspend\n\n  quit \n\xff")
    reader.feed_eof()
    told = [topic async for topic in commands(reader)]
    assert told == ["command/suspend", "command/quit", "command/\ufffd"]


async def test_what_comes_too_often_is_handled_once() -> None:
    """W-110."""
    clock, told = VirtualClock(), []

    async def handle(topic: str) -> None:
        told.append(topic)

    handler = debounced(handle, 5, clock)
    for topic, pause in (("a", 1), ("b", 4), ("c", 6), ("d", 0)):
        await handler(topic)
        await clock.advance(pause)
    assert told == ["a", "d"]


async def test_the_standard_topics(stage: Stage) -> None:
    """W-108."""
    supervisor = await stage.running(stage.spec("a"))
    router = Router()
    steer(router, supervisor)
    statuses = []
    for topic in ("suspend", "resume", "terminate"):
        await stage.during(router.dispatch(f"lifecycle/{topic}"))
        statuses.append(supervisor.snapshot().children[0].status)
    assert statuses == ["Suspended", "Running", "Stopped"]
    assert await router.dispatch("lifecycle/shutdown")
    assert [line for line in stage.log if "suspend" in line] == ["a suspend"] * 2
