"""A disk that is full for a while: what could not be written down was not done by half either."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from detent.errors import BadJournal
from detent.lifecycle.worker import WorkerState
from detent.runtime.supervisor.spec import OnSick, Probe
from detent.runtime.supervisor.supervisor import Supervisor
from tests.runtime.supervisor.stage import Stage
from tests.runtime.supervisor.test_restarting import die, live

_S = WorkerState
_NO_SLOTS = "BEFORE INSERT ON slot BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"


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
