"""An instance walks its states under a supervisor: start, readiness, ends, and the first start."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from detent.errors import AlreadyStarted, StartFailed
from detent.lifecycle.worker import Exit, WorkerState
from detent.runtime.supervisor.spec import Restart
from detent.runtime.supervisor.strategy import Strategy
from tests.runtime.supervisor.stage import CLEAN, CRASH, Puppet, Stage

_S = WorkerState


async def test_starting_and_stopping_are_visible(stage: Stage) -> None:
    """W-33, W-20: every state is journalled, in order, before anybody sees it."""
    supervisor = await stage.running(stage.spec("w", {"ready_in": 2.0, "obeys_in": 3.0}))
    live = supervisor.slots["w"].live
    assert live is not None
    assert live.state is _S.RUNNING
    await stage.during(supervisor.stop())
    assert stage.states(live.id) == ["created", "starting", "running", "stopping", "stopped"]
    assert [event.name for event in stage.journal.history(live.id)][2] == "spawned"
    assert live.record.pid is not None


async def test_starts_in_order_and_stops_in_reverse(stage: Stage) -> None:
    """W-30."""
    supervisor = await stage.running(*(stage.spec(name) for name in "abc"))
    await stage.during(supervisor.stop())
    assert [line for line in stage.log if "spawn" in line or "ask" in line] == [
        *("a spawn", "b spawn", "c spawn"),
        *("c ask 10", "b ask 10", "a ask 10"),
    ]


async def test_a_child_that_fails_in_the_first_start_stops_the_others_in_reverse(
    stage: Stage,
) -> None:
    """W-34: and the error names it, with its last words."""
    bad = stage.spec("c", {"spawn_error": OSError("no such file")})
    supervisor = stage.supervisor(stage.spec("a"), stage.spec("b"), bad)
    with pytest.raises(StartFailed, match="the last words") as caught:
        await stage.during(supervisor.start())
    assert caught.value.fields["slot"] == "c"
    assert caught.value.fields["cause"] == "spawn_error"
    assert caught.value.fields["exit_code"] == -1
    assert caught.value.fields["error_code"] == "OSError"
    assert stage.numbers.counts["lifecycle_processes_failed_total"] == 1
    assert [line for line in stage.log if "ask" in line] == ["b ask 10", "a ask 10"]
    assert supervisor.phase is _S.STOPPED


@pytest.mark.parametrize("number", [9, 15])
@pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ONE, Strategy.REST_FOR_ONE])
async def test_a_child_that_is_killed_in_the_first_start_is_started_again(
    stage: Stage, number: int, strategy: Strategy
) -> None:
    """W-35: a signal from outside says nothing about whether it can be started."""
    specs = (stage.spec("a"), stage.spec("b", {"ready_in": 5.0}), stage.spec("c"))
    supervisor = stage.supervisor(*specs, strategy=strategy)
    starting = asyncio.ensure_future(supervisor.start())
    await stage.clock.until(lambda: stage.made("b") == 1)
    await stage.clock.advance(1)
    stage.last("b").die(Exit.of_process(-number))
    await stage.during(starting, 60)
    assert [stage.made(name) for name in "abc"] == [1, 2, 1]
    assert stage.numbers.counts["lifecycle_worker_restarts_total"] == 1
    assert not [line for line in stage.log if "ask" in line]
    await stage.during(supervisor.stop())


async def test_a_child_that_is_killed_and_never_restarted_fails_the_first_start(
    stage: Stage,
) -> None:
    spec = stage.spec("a", {"ready_in": 5.0}, restart=Restart.NEVER)
    supervisor = stage.supervisor(spec)
    starting = asyncio.ensure_future(supervisor.start())
    await stage.clock.until(lambda: stage.made("a") == 1)
    await stage.clock.advance(1)
    stage.last("a").die(Exit.of_process(-9))
    with pytest.raises(StartFailed, match="sigkill_external"):
        await stage.during(starting)


async def test_a_factory_that_raises_is_a_spawn_error(stage: Stage) -> None:
    """W-34."""
    spec = stage.spec("a")

    def broken() -> Puppet:
        raise ModuleNotFoundError("no module")

    supervisor = stage.supervisor(replace(spec, make=broken))
    with pytest.raises(StartFailed) as caught:
        await stage.during(supervisor.start())
    assert caught.value.fields["error_code"] == "ModuleNotFoundError"


async def test_a_second_start_is_refused_and_a_second_stop_is_not(stage: Stage) -> None:
    """W-32, W-67."""
    supervisor = await stage.running(stage.spec("a"))
    with pytest.raises(AlreadyStarted):
        await supervisor.start()
    await stage.during(supervisor.stop())
    await supervisor.stop()
    never = stage.supervisor()
    await never.stop()
    assert never.phase is _S.STOPPED


async def test_time_in_which_the_supervisor_stood_still_is_not_the_workers(stage: Stage) -> None:
    """W-33: stopped with Ctrl-Z, it has not heard of anybody who was ready, nor told them so."""
    supervisor = stage.supervisor(stage.spec("a", {"ready_in": 62.0}, init_timeout_s=30))
    starting = asyncio.ensure_future(supervisor.start())
    await stage.clock.advance(1)
    stage.clock.stand_still(60)
    await stage.during(starting)
    assert stage.last("a").told == ["spawn"]
    await stage.during(supervisor.stop())


async def test_who_waits_for_others_is_not_slow_to_start(stage: Stage) -> None:
    """W-33: a database that is away for longer than a start may take."""
    spec = stage.spec("a", {"ready_in": 62.0, "waits": True}, init_timeout_s=30)
    supervisor = stage.supervisor(spec)
    await stage.during(supervisor.start(), 120)
    assert stage.last("a").told == ["spawn"]
    await stage.during(supervisor.stop())


async def test_who_is_ready_while_it_is_given_up_is_too_late(stage: Stage) -> None:
    """K4, W-19: its stacks are being taken; then it is forced, and its slot goes on."""
    spec = stage.spec("a", init_timeout_s=30)
    supervisor = await stage.running(spec)
    stage.last("a").die(CRASH)
    await stage.clock.settle()
    await stage.clock.until(lambda: stage.made("a") == 2)
    live, body = supervisor.slots["a"].live, stage.last("a")
    assert live is not None

    async def dump() -> str:
        await stage.clock.sleep(0.9)
        return "the stacks"

    body.ready_in, body.dump = 30.5, dump  # type: ignore[method-assign]
    await stage.clock.until(live.done.done, 60)
    assert (live.state, live.record.cause) == (_S.FAILED, "init_timeout")
    assert stage.states(live.id)[-2:] == ["starting", "failed"]
    await stage.clock.until(lambda: stage.made("a") == 3)
    await stage.during(supervisor.stop())


async def test_init_timeout_forces_and_fails(stage: Stage) -> None:
    """K4, W-33: no killed flag, and the force is noted before it is done."""
    spec = stage.spec("a", {"ready_in": None}, init_timeout_s=30)
    supervisor = stage.supervisor(spec)
    with pytest.raises(StartFailed) as caught:
        await stage.during(supervisor.start())
    assert caught.value.fields["cause"] == "init_timeout"
    assert stage.last("a").told == ["spawn", "dump", "force", "died"]
    assert "init_forced" in stage.notes()
    record = supervisor.slots["a"].last
    assert record is not None
    assert (record.state, record.killed) == (_S.FAILED, False)
    assert stage.journal.dump_of(record.id) == "the stacks"


async def test_a_spawn_that_never_returns_is_given_up(stage: Stage) -> None:
    """K4: it can be forced though nothing was heard of it."""
    supervisor = stage.supervisor(stage.spec("a", {"spawn_in": 1_000.0}))
    with pytest.raises(StartFailed) as caught:
        await stage.during(supervisor.start(), 200)
    assert caught.value.fields["cause"] == "init_timeout"


async def test_a_stop_during_init_that_is_obeyed(stage: Stage) -> None:
    """E7."""
    supervisor = await stage.running()
    spec = stage.spec("a", {"ready_in": 20.0, "obeys_in": 1.0})
    task = asyncio.ensure_future(supervisor.add(spec))
    await stage.clock.advance(5)
    await stage.during(supervisor.stop_slot("a"))
    await stage.during(task)
    record = supervisor.slots["a"].last
    assert record is not None
    assert (record.state, record.cause) == (_S.STOPPED, "requested")
    assert stage.states(record.id) == ["created", "starting", "stopped"]


async def test_a_stop_during_init_that_is_refused(stage: Stage) -> None:
    """K4: forced, failed as init_killed, without the killed flag."""
    supervisor = await stage.running()
    spec = stage.spec("a", {"ready_in": None, "obeys_in": None})
    task = asyncio.ensure_future(supervisor.add(spec))
    await stage.clock.advance(5)
    await stage.during(supervisor.stop_slot("a", 2))
    await stage.during(task)
    record = supervisor.slots["a"].last
    assert record is not None
    assert (record.state, record.cause, record.killed) == (_S.FAILED, "init_killed", False)


async def test_a_clean_end_before_the_ready_signal_is_a_failure(stage: Stage) -> None:
    """K6, with a signal."""
    supervisor = await stage.running()
    spec = stage.spec("a", {"ready_in": None, "dies_in": 1.0, "exit": CLEAN})
    with pytest.raises(StartFailed) as caught:
        await stage.during(supervisor.add(spec))
    assert caught.value.fields["cause"] == "exited_before_ready"


async def test_a_short_life_without_a_ready_signal_is_finished(stage: Stage) -> None:
    """K6, by uptime: E5 then E10."""
    how = {"ready_in": None, "dies_in": 1.0, "exit": CLEAN}
    spec = stage.spec("a", how, needs_ready_signal=False, restart=Restart.NEVER)
    supervisor = await stage.running(spec)
    record = supervisor.slots["a"].last
    assert record is not None
    assert stage.states(record.id) == ["created", "starting", "running", "finished"]


class Hasty(Puppet):
    """Says that it is ready with its last breath."""

    async def ready(self) -> None:
        await self.ended()


async def test_what_it_said_before_it_ended_it_has_said(stage: Stage) -> None:
    """K6: the signal came, though its end is noticed in the same moment."""
    hasty = Hasty(dies_in=1.0, exit=CLEAN)
    hasty.clock = stage.clock
    spec = replace(stage.spec("a", restart=Restart.NEVER), make=lambda: hasty)
    supervisor = await stage.running(spec)
    record = supervisor.slots["a"].last
    assert record is not None
    assert stage.states(record.id) == ["created", "starting", "running", "finished"]


async def test_an_end_while_suspended(stage: Stage) -> None:
    """K2: by way of running, started_at untouched."""
    supervisor = await stage.running(stage.spec("a", restart=Restart.NEVER))
    await stage.during(supervisor.suspend("a"))
    before = supervisor.slots["a"].live
    assert before is not None
    started_at = before.record.started_at
    stage.last("a").die(CRASH)
    await stage.during(before.done)
    assert stage.states(before.id)[-3:] == ["suspended", "running", "failed"]
    assert before.record.cause == "exit_while_suspended"
    assert before.record.started_at == started_at


async def test_two_readers_of_one_result_and_one_after_the_end(stage: Stage) -> None:
    """W-18, W-21."""
    supervisor = await stage.running(stage.spec("a", restart=Restart.NEVER))
    live = supervisor.slots["a"].live
    assert live is not None
    first, second = (asyncio.ensure_future(asyncio.shield(live.done)) for _ in range(2))
    stage.last("a").die(CRASH)
    await stage.clock.settle()
    assert first.result() is second.result() is await live.done
    assert first.result().state is _S.FAILED


async def test_an_end_is_recorded_once(stage: Stage) -> None:
    """W-19."""
    supervisor = await stage.running(stage.spec("a", restart=Restart.NEVER))
    live = supervisor.slots["a"].live
    assert live is not None
    stage.last("a").die(CRASH)
    await stage.clock.settle()
    assert not await live.finish(CLEAN)
    assert live.state is _S.FAILED
    assert stage.tree.ended_twice == 1


async def test_an_end_that_cannot_be_seen_is_an_end(stage: Stage) -> None:
    """W-18: nobody waits for ever, and what may be left of it is killed."""
    supervisor = await stage.running(stage.spec("a"))
    one, body = supervisor.slots["a"].live, stage.last("a")
    assert one is not None
    assert body._end is not None  # noqa: SLF001
    body._end.set_exception(OSError("too many files"))  # noqa: SLF001
    await stage.clock.advance(5)
    assert (one.record.state, one.record.code) == ("failed", "OSError")
    assert body.told == ["spawn", "force"]
    assert stage.made("a") == 2


async def test_a_stop_while_siblings_start_one_by_one(stage: Stage) -> None:
    """E7, W-67: whoever waits for the start hears that it is over, and nobody is started by it."""
    specs = [stage.spec(name, {"ready_in": 5.0}) for name in "abc"]
    supervisor = stage.supervisor(*specs, strategy=Strategy.ONE_FOR_ALL)
    starting = asyncio.ensure_future(supervisor.start())
    await stage.clock.advance(1)
    await stage.during(supervisor.stop())
    await stage.during(starting)
    assert stage.last("a").told == ["spawn", "ask 10", "died"]
    assert supervisor.snapshot().status == "Stopped"
