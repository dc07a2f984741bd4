"""A disk that is full for a while: what could not be written down was not done by half either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from detent.errors import BadJournal
from detent.lifecycle.worker import WorkerState
from detent.runtime.supervisor.spec import OnSick, Probe
from detent.runtime.supervisor.supervisor import Supervisor
from tests.runtime.supervisor.stage import CLEAN, Stage
from tests.runtime.supervisor.test_restarting import die, live

_S = WorkerState
_NO = "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
_NO_SLOTS = f"BEFORE INSERT ON slot {_NO}"
_NO_ENTRIES = f"BEFORE INSERT ON entry {_NO}"
_NO_BIRTHS = f"BEFORE INSERT ON entry WHEN NEW.version = 1 {_NO}"
_NO_FORGETTING = f"BEFORE DELETE ON instance {_NO}"


def fill(stage: Stage, *, full: bool) -> None:
    """As a full disk would, and as one with room again."""
    stage.journal._db.execute(f"PRAGMA query_only = {full}")  # noqa: SLF001


async def test_whose_health_could_not_be_told_is_still_asked(stage: Stage) -> None:
    """W-84."""
    supervisor = await stage.running(stage.spec("a", probe=Probe()))
    fill(stage, full=True)
    await stage.clock.advance(25)
    fill(stage, full=False)
    await stage.clock.advance(10)
    assert live(supervisor, "a").record.health == "healthy"


async def test_a_sick_one_is_replaced_all_the_same(stage: Stage) -> None:
    """W-85: asked while nothing can be written down, and on record when there is room."""
    supervisor = await stage.running(stage.spec("a", probe=Probe(on_sick=OnSick.RESTART)))
    first = live(supervisor, "a")
    await stage.clock.advance(11)
    stage.last("a").well = False
    fill(stage, full=True)
    await stage.clock.advance(50)
    assert stage.last("a").told[-2:] == ["ask 10", "died"]
    fill(stage, full=False)
    await stage.clock.advance(50)
    assert first.done.done()
    assert live(supervisor, "a").state is _S.RUNNING


async def test_who_is_not_on_record_as_quiet_works(stage: Stage) -> None:
    """W-38: never half suspended."""
    supervisor = await stage.running(stage.spec("a"))
    fill(stage, full=True)
    with pytest.raises(BadJournal):
        await stage.during(supervisor.suspend("a"))
    assert stage.last("a").told[-2:] == ["suspend", "resume"]
    assert live(supervisor, "a").state is _S.RUNNING


async def test_who_is_on_record_as_working_is_told(stage: Stage) -> None:
    """W-38: the slot's row is the second write of two."""
    supervisor = await stage.running(stage.spec("a"))
    await stage.during(supervisor.suspend("a"))
    stage.journal._db.execute(f"CREATE TRIGGER full {_NO_SLOTS}")  # noqa: SLF001
    with pytest.raises(BadJournal):
        await stage.during(supervisor.resume("a"))
    assert live(supervisor, "a").state is _S.RUNNING
    assert stage.last("a").told[-1] == "resume"
    assert supervisor.slots["a"].is_suspended


@pytest.mark.parametrize("act", [Supervisor.stop_slot, Supervisor.remove])
async def test_who_could_not_be_stopped_is_looked_after(
    stage: Stage, act: Callable[[Supervisor, str], Coroutine[Any, Any, None]]
) -> None:
    """W-20: nothing was done, so nothing is different."""
    supervisor = await stage.running(stage.spec("a"))
    fill(stage, full=True)
    with pytest.raises(BadJournal):
        await stage.during(act(supervisor, "a"))
    fill(stage, full=False)
    await die(stage, "a")
    await stage.clock.advance(10)
    assert (stage.made("a"), live(supervisor, "a").state) == (2, _S.RUNNING)


async def test_an_end_is_told_though_what_is_old_cannot_be_forgotten(stage: Stage) -> None:
    """W-19: it is written; who takes it for unwritten writes it again and again, in vain."""
    stage.journal._kept = 1  # noqa: SLF001 - so that every end prunes
    supervisor = await stage.running(stage.spec("a"))
    await die(stage, "a")
    await stage.clock.advance(10)
    stage.journal._db.execute(f"CREATE TRIGGER full {_NO_FORGETTING}")  # noqa: SLF001
    one = live(supervisor, "a")
    await die(stage, "a")
    await stage.clock.advance(10)
    assert one.done.done()
    assert live(supervisor, "a").state is _S.RUNNING


async def test_two_who_wait_for_room_make_one_instance(stage: Stage) -> None:
    """Section 1: a slot has one worker, however many want it up."""
    supervisor = await stage.running(stage.spec("a"))
    stage.journal._db.execute(f"CREATE TRIGGER full {_NO_BIRTHS}")  # noqa: SLF001
    await die(stage, "a")
    starting = asyncio.ensure_future(supervisor.start_slot("a"))
    await stage.clock.advance(3)
    stage.journal._db.execute("DROP TRIGGER full")  # noqa: SLF001
    await stage.clock.advance(5)
    await starting
    assert [one.state for one in supervisor.lives] == [_S.RUNNING]


async def test_who_is_stopped_while_it_waits_for_room_is_not_started(stage: Stage) -> None:
    """W-51: asked again when there is room."""
    supervisor = await stage.running(stage.spec("a"))
    stage.journal._db.execute(f"CREATE TRIGGER full {_NO_BIRTHS}")  # noqa: SLF001
    await die(stage, "a")
    await supervisor.stop_slot("a")
    stage.journal._db.execute("DROP TRIGGER full")  # noqa: SLF001
    await stage.clock.advance(5)
    assert not any(one.told for one in stage.puppets["a"][1:])


@pytest.mark.parametrize("ends", [False, True])
async def test_a_stop_that_is_written_first_comes_before_ready(stage: Stage, ends: bool) -> None:
    """W-18, E7: whoever was ready while nothing could be written ends all the same."""
    supervisor = await stage.running()
    adding = asyncio.ensure_future(supervisor.add(stage.spec("a", {"ready_in": 3.0})))
    await stage.clock.advance(1)
    one = live(supervisor, "a")
    fill(stage, full=True)
    await stage.clock.advance(2.5)
    if ends:
        stage.last("a").die(CLEAN)
        await stage.clock.settle()
    fill(stage, full=False)
    await stage.during(supervisor.stop_slot("a"), 20)
    await stage.during(adding)
    assert (one.state, stage.tree.illegal) == (_S.STOPPED, 0)


async def test_a_removal_that_cannot_be_written_down_can_be_tried_again(stage: Stage) -> None:
    """W-62: forgotten is what is forgotten on the disk."""
    supervisor = await stage.running(stage.spec("a"))
    await stage.during(supervisor.stop_slot("a"))
    fill(stage, full=True)
    with pytest.raises(BadJournal):
        await supervisor.remove("a")
    fill(stage, full=False)
    await supervisor.remove("a")
    assert stage.journal.slot("a") is None
