"""Reports of many jobs at once: which are refused is told, and what the others said is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from detent.engine.asks import Ask
from detent.engine.commands import Beside, Change
from detent.engine.ends import completions
from detent.engine.engine import Engine
from detent.lifecycle import job as j
from detent.lifecycle.machine import Refusal
from detent.stores.api import Line, Stored, key_of
from tests.contract.making import USER, WORKER
from tests.contract.world import World

NAMES = [f"name-{number}" for number in range(50)]


async def running(world: World, engine: Engine, number: int) -> list[Stored]:
    await engine.enqueue([Ask(type="mail.send", profile="python") for _ in range(number)], USER)
    return await world.claim(number)


def report(one: Stored, result: str | None = None, **more: Any) -> Change:
    done = j.Complete(lease=one.job.lease, digest=None if result is None else "sha-256:0a")
    return Change(key_of(one.job), done, WORKER, beside=Beside(result), known=one, **more)


async def states(world: World, jobs: Sequence[Stored]) -> list[str]:
    found = await world.store.get([key_of(one.job) for one in jobs])
    return [one.job.state for one in found if one is not None]


@pytest.mark.parametrize("result", [None, "[1]"])
async def test_many_that_complete_alike_are_one(
    world: World, engine: Engine, result: str | None
) -> None:
    jobs = await running(world, engine, 40)
    changes = [report(one, result) for one in jobs]
    assert completions(changes, NAMES[:40], world.now) is not None
    assert await engine.refused(changes) == {}
    assert await states(world, jobs) == ["completed"] * 40
    found = await world.store.get([key_of(one.job) for one in jobs])
    assert [one.result for one in found if one is not None] == [result] * 40
    histories = await world.store.histories([key_of(one.job) for one in jobs])
    assert len({one[-1].event.command_id for one in histories}) == 40


async def test_whoever_is_refused_is_named_and_no_other_is_hurt(
    world: World, engine: Engine
) -> None:
    jobs = await running(world, engine, 20)
    await world.complete(jobs[7].job)
    await engine.carry_out([Change(key_of(jobs[3].job), j.Reprioritise(4), USER)])
    refused = await engine.refused([report(one) for one in jobs])
    assert {at: type(one) for at, one in refused.items()} == {7: Refusal}
    assert await states(world, jobs) == ["completed"] * 20


async def test_the_same_report_again_is_no_refusal(world: World, engine: Engine) -> None:
    """The answer to the first was lost; what it said is done all the same."""
    jobs = await running(world, engine, 12)
    changes = [report(one) for one in jobs]
    assert await engine.refused(changes) == {}
    answers = await engine.carry_out(changes)
    expected = {at for at, one in enumerate(answers) if isinstance(one, Refusal)}
    assert set(await engine.refused(changes)) == expected


OTHERS = {
    "a failure": lambda one: Change(
        key_of(one.job), j.Fail(lease=one.job.lease, code="x"), WORKER, known=one
    ),
    "one with a reason": lambda one: report(one, reason="by hand"),
    "one that nobody knows": lambda one: Change(
        key_of(one.job), j.Complete(lease=one.job.lease), WORKER
    ),
    "one with lines": lambda one: Change(
        key_of(one.job),
        j.Complete(lease=one.job.lease),
        WORKER,
        beside=Beside(lines=(Line(1, "said"),)),
        known=one,
    ),
    "one that others follow": lambda one: report(one, new=(Ask(type="next", profile="python"),)),
    "another lease": lambda one: Change(
        key_of(one.job), j.Complete(lease="not this"), WORKER, known=one
    ),
}


@pytest.mark.parametrize("at", [0, 5])
@pytest.mark.parametrize("kind", OTHERS)
async def test_one_that_is_otherwise_is_decided_about_like_any_other(
    world: World, engine: Engine, kind: str, at: int
) -> None:
    jobs = await running(world, engine, 10)
    changes = [report(one) for one in jobs]
    changes[at] = OTHERS[kind](jobs[at])
    assert completions(changes, NAMES[:10], world.now) is None
    refused = await engine.refused(changes)
    assert refused.keys() == ({at} if kind == "another lease" else set())
    others = {"a failure": "retryable", "another lease": "active"}
    expected = ["completed"] * 10
    expected[at] = others.get(kind, "completed")
    assert await states(world, jobs) == expected
    follow = [one for one in (await world.everything()).values() if one.body.type == "next"]
    assert len(follow) == (kind == "one that others follow")
