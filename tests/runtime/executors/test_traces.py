"""What a run leaves behind is nothing to the next, and what it raises ends nothing but itself."""

from __future__ import annotations

import pytest

from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.runtime.ending import Told, ending
from detent.runtime.executors.api import Executor, Returned, Run
from detent.runtime.executors.processes import Pool, ProcessExecutor
from detent.runtime.executors.tasks import AsyncExecutor
from detent.runtime.executors.threads import ThreadExecutor
from tests.runtime.executors.desk import Desk, opened, value


@pytest.mark.parametrize("what", ["context", "alarm", "blocked"])
async def test_what_one_job_sets_is_not_there_for_the_next(
    reference: str, desk: Desk, what: str
) -> None:
    async with opened(ProcessExecutor(reference, Pool(most=1))) as one:
        pid = value(await one.run(await desk.run_of("leaves", what)))
        for name in ("finds", "afinds"):
            assert value(await one.run(await desk.run_of(name))) == [pid, "nothing", 0.0, []]


@pytest.mark.parametrize("name", ["strikes", "astrikes"])
async def test_who_interrupts_itself_has_failed_and_was_not_called_off(
    pool: ProcessExecutor, desk: Desk, name: str
) -> None:
    run = await desk.run_of(name)
    ended = await pool.run(run)
    assert isinstance(ended, Told)
    assert (ended.code, ended.retryable) == ("handler_error", None)
    assert name in ended.backtrace or "cancelled" in ended.message


def executors(reference: str) -> list[tuple[str, Executor]]:
    return [
        ("araises", AsyncExecutor()),
        ("raises", ThreadExecutor()),
        ("raises", ProcessExecutor(reference, Pool(most=1))),
    ]


async def change_of(executor: Executor, run: Run) -> tuple[j.Command | None, str]:
    """What is reported of it, and what it is said to have raised."""
    ended = await executor.run(run)
    told = ended.value if isinstance(ended, Returned) else ended
    change = ending(run.stored, told, By(Actor.WORKER, "w1"), run.ctx.heard, 0)
    failure = change.beside.failure
    return change.command, "" if failure is None else failure.message


@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("untold", "handler_error", "(no message: SystemExit)"),
        ("syntax", "handler_error", "odd (file)"),
        ("bare", "handler_error", ""),
        ("numbered", "handler_error", ""),
        ("discard", "DISCARD", "'why'"),
    ],
)
async def test_an_odd_error_is_a_failure_wherever_it_is_raised(
    reference: str, desk: Desk, what: str, code: str, message: str
) -> None:
    for name, executor in executors(reference):
        async with opened(executor):
            command, said = await change_of(executor, await desk.run_of(name, what))
        assert isinstance(command, j.Fail)
        assert (command.code, said) == (code, message)


async def test_a_reason_need_not_be_a_text(reference: str, desk: Desk) -> None:
    for name, executor in executors(reference):
        async with opened(executor):
            command, _ = await change_of(executor, await desk.run_of(name, "cancelled"))
        assert isinstance(command, j.ConfirmCancel)
