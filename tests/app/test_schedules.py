"""Schedules that a program declares are in the store when upkeep starts, once and as declared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from detent import Context, Detent, JobExists
from detent.app import detent
from detent.errors import (
    BadOption,
    BadSchedule,
    BadSignature,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    UnknownSchedule,
)
from detent.stores.api import Record
from detent.testing import Rig, VirtualClock

DAY = timedelta(days=1)


def nightly(app: Detent, expression: str = "0 3 * * *", tz: str = "Europe/Berlin") -> list[int]:
    """A job of every night, and the list of its runs."""
    ran: list[int] = []

    @app.schedule(expression, tz=tz)
    @app.job
    def report(number: int = 7) -> int:
        ran.append(number)
        return number

    app.schedules.add("@every 1h", report.bind(8), name="hourly", overlap="allow")
    return ran


def test_a_declared_schedule_fires_by_its_own_clock(app: Detent, clock: VirtualClock) -> None:
    ran = nightly(app)
    assert app.drain() == []
    found = app.schedules.get("report")
    assert found is not None
    assert found.next_at == datetime(2030, 1, 1, 2, tzinfo=UTC)
    assert [one.name for one in app.schedules.list()] == ["hourly", "report"]
    clock.advance(DAY)
    app.drain()
    assert sorted(ran) == [7, 8]


def test_a_schedule_above_a_job_that_needs_an_argument_is_refused_where_it_stands(
    app: Detent,
) -> None:
    @app.job
    def sync(ctx: Context, city: str, *more: int, depth: int) -> None: ...

    with pytest.raises(BadSignature) as refused:
        app.schedule("@every 6h", name="sync-all")(sync)
    assert str(refused.value) == (
        "The schedule 'sync-all' gives its job no arguments, and sync needs 'city', 'depth':"
        " give it a default, or use app.schedules.add('@every 6h', sync.bind(...))"
    )

    @app.schedule("@every 6h")
    @app.job
    def whole(ctx: Context, city: str = "Berlin") -> None: ...

    @app.schedule("@every 6h")
    @app.job
    def early(later: Declared = None) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    app.schedules.add("@every 6h", sync.bind("Rome", depth=1), name="sync-rome")
    with pytest.raises(BadSignature, match="Declared"):
        app.schedules.put()


def test_a_program_that_starts_again_changes_nothing(app: Detent, clock: VirtualClock) -> None:
    nightly(app)
    before = app.schedules.put()
    clock.advance(60)
    assert app.schedules.put() == before


def test_what_the_program_says_now_counts_and_a_pause_stays(
    clock: VirtualClock, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('twice')}/detent.db"
    with Detent(url, clock=clock) as first:
        nightly(first)
        first.schedules.put()
        assert first.schedules.pause("report", "holidays").is_paused
    with Detent(url, clock=clock) as second:
        nightly(second, "0 4 * * *", "UTC")
        assert second.drain() == []
        found = second.schedules.get("report")
        assert found is not None
        assert (found.expression, found.tz, found.is_paused) == ("0 4 * * *", "UTC", True)
        resumed = second.schedules.resume("report")
        assert resumed.next_at == datetime(2030, 1, 1, 4, tzinfo=UTC)


async def test_programs_that_start_at_once_agree(app: Detent) -> None:
    nightly(app)
    await asyncio.gather(*(app.schedules.aput() for _ in range(8)))
    assert len(await app.schedules.alist()) == 2


def test_a_schedule_is_fired_by_hand_and_removed(app: Detent) -> None:
    ran = nightly(app)
    app.schedules.put()
    handle = app.schedules.fire("report", "now, please")
    app.drain()
    assert (handle.result(), ran) == (7, [7])
    app.schedules.remove("report")
    assert app.schedules.get("report") is None
    with pytest.raises(UnknownSchedule):
        app.schedules.fire("report")


def test_a_unique_job_that_is_there_already_is_not_fired_by_hand(app: Detent) -> None:
    @app.schedule("@daily")
    @app.job(unique=True)
    def only() -> None: ...

    app.schedules.put()
    app.schedules.fire("only")
    with pytest.raises(JobExists):
        app.schedules.fire("only")


def test_what_cannot_work_is_refused_where_it_is_declared(app: Detent) -> None:
    @app.job
    def needy(name: str) -> None: ...

    def declare(expression: str = "@daily", **options: object) -> Callable[[], None]:
        return lambda: app.schedules.add(expression, needy.bind("a"), **options)  # type: ignore[arg-type]

    for wrong, error in [
        (declare("0 25 * * *"), BadSchedule),
        (declare(tz="Mars/Olympus"), BadSchedule),
        (declare(zone="UTC"), BadOption),
        (declare(overlap="maybe"), BadOption),
        (declare(catch_up="maybe"), BadOption),
    ]:
        with pytest.raises(error):
            wrong()
    declare()()
    with pytest.raises(BadOption):
        declare()()


async def test_upkeep_begins_with_what_is_declared_and_ends_when_called_off(app: Detent) -> None:
    nightly(app)
    task = asyncio.create_task(app.aupkeep())
    while len(await app.schedules.alist()) < 2:
        pass
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.parametrize("error", [StoreBusy("later"), StoreFull("later"), StoreCorrupt("never")])
async def test_upkeep_goes_on_when_trying_again_can_help(
    app: Detent, clock: VirtualClock, error: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detent, "UPKEEP_RETRY_S", 0)
    ran, left = nightly(app), [error]
    engine = await app.bridge.reach(app.engine())

    async def answer(due: Sequence[Record]) -> None:
        if left:
            raise left.pop()
        await engine.schedules.answer(due)

    engine.answers["schedule"] = answer
    await app.schedules.aput()
    clock.advance(DAY)
    task = asyncio.create_task(app.aupkeep())
    while not task.done() and (found := await app.schedules.aget("report")) and not found.fired:
        clock.advance(1)
    assert task.done() is not error.retryable
    task.cancel()
    with suppress(asyncio.CancelledError, StoreCorrupt):
        await task
    await app.adrain()
    assert sorted(ran) == [7, 8]


def test_a_rig_fires_slots_when_its_clock_is_moved() -> None:
    app = Detent()
    ran = nightly(app)
    with Rig(app) as rig:
        rig.drain(advance=True)
        assert ran == []
        rig.clock.advance(DAY)
        rig.drain()
        assert sorted(ran) == [7, 8]
