"""Words for working on jobs through an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detent.engine.asks import Ask
from detent.engine.commands import Beside, Change
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.lifecycle import job as j
from detent.lifecycle.retry import ErrorInfo
from detent.stores.api import Stored, key_of
from tests.contract.making import USER, WORKER
from tests.contract.world import World

FATAL = ErrorInfo("boom", "Fatal")


async def push(engine: Engine, **more: Any) -> j.Job:
    """A new job."""
    [made] = await engine.enqueue([Ask(**{"type": "mail.send", **more})], USER)
    assert isinstance(made, Enqueued), made
    return made.job


async def claim(world: World, engine: Engine, number: int = 100) -> list[Stored]:
    """Jobs in the hands of w1."""
    await world.alive("w1")
    return list((await engine.claim(world.make.want(number))).jobs)


def completed(stored: Stored, result: str | None = None) -> Change:
    """The report of a success."""
    command = j.Complete(lease=stored.job.lease)
    return Change(key_of(stored.job), command, WORKER, beside=Beside(result=result), known=stored)


def failed(stored: Stored) -> Change:
    """The report of a failure; whether it is final is for the job's policy to say."""
    command = j.Fail(lease=stored.job.lease, code="boom")
    return Change(key_of(stored.job), command, WORKER, error=ErrorInfo("boom"), known=stored)


async def complete_all(engine: Engine, taken: Sequence[Stored]) -> None:
    """All of them succeed, and say what they are."""
    await engine.carry_out([completed(one, one.body.payload) for one in taken])


async def types(world: World, engine: Engine) -> list[str]:
    """What can be claimed, by type; it is completed at once."""
    taken = await claim(world, engine)
    await complete_all(engine, taken)
    return [one.body.type for one in taken]
