"""Anything, in any order, at any moment: every life stays legal and nothing is left over."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from detent.errors import DetentError
from detent.lifecycle.worker import Exit, WorkerState, apply, broken, doubted
from detent.runtime.supervisor.breaker import Breaker
from detent.runtime.supervisor.spec import OnSick, Probe, Recycle, Restart
from detent.runtime.supervisor.strategy import Strategy
from detent.runtime.supervisor.supervisor import Supervisor
from tests.runtime.supervisor.stage import Stage

ENDS = [Exit.of_process(code) for code in (0, 1, 125, -9, -11, -15)]
STEPS = 120


def how(chance: Random) -> dict[str, Any]:
    return {
        "ready_in": chance.choice([0.0, 0.0, 1.0, 40.0, None]),
        "obeys_in": chance.choice([0.0, 1.0, 9.99, None]),
        "quiet_in": chance.choice([0.0, 2.0, None]),
        "spawn_in": chance.choice([0.0, 0.0, 3.0]),
        "dies_in": chance.choice([None, None, None, 0.0, 5.0]),
        "exit": chance.choice(ENDS),
        "spawn_error": chance.choice([None, None, None, OSError("no")]),
    }


class Monkey:
    """Presses whatever button there is."""

    def __init__(self, stage: Stage, seed: int, strategy: Strategy) -> None:
        self.chance = Random(seed)
        self.stage = stage
        self.ways: list[dict[str, Any]] = []
        specs = [self.spec(name) for name in "abcd"]
        # The first start is to succeed; from then on each instance has its own ways.
        for way in self.ways:
            way.clear()
        self.supervisor = stage.supervisor(*specs, strategy=strategy, breaker=Breaker(most=3))
        self.tasks: list[asyncio.Task[Any]] = []

    def spec(self, name: str) -> Any:
        kind, way = self.chance, how(self.chance)
        self.ways.append(way)
        return self.stage.spec(
            name,
            way,
            restart=kind.choice(list(Restart)),
            breaker=kind.choice([None, Breaker(most=2, window_s=20, cool_down_s=15)]),
            probe=kind.choice([None, Probe(on_sick=OnSick.RESTART)]),
            recycle=kind.choice([None, Recycle(age_s=20, check_s=3, grace_s=15)]),
        )

    async def press(self) -> None:
        names = [*self.supervisor.slots, "z"]
        name = self.chance.choice(names)
        wishes = {
            "stop": lambda: self.supervisor.stop_slot(name, self.chance.choice([None, 0, 3])),
            "kill": lambda: self.supervisor.kill(name),
            "start": lambda: self.supervisor.start_slot(name),
            "restart": lambda: self.supervisor.restart(name),
            "suspend": lambda: self.supervisor.suspend(name, 5),
            "resume": lambda: self.supervisor.resume(name),
            "inspect": lambda: self.supervisor.inspect(name, fresh=True),
            "replace": lambda: self.supervisor.replace(self.spec(name)),
            "remove": lambda: self.supervisor.remove(name),
            "add": lambda: self.supervisor.add(self.spec(self.chance.choice("abcdef"))),
        }
        wish = self.chance.choice(["die", "sick", "wait", "wait", "change", *wishes])
        bodies = [one for made in self.stage.puppets.values() for one in made[-2:]]
        if wish == "die" and bodies:
            self.chance.choice(bodies).die(self.chance.choice(ENDS))
        elif wish == "sick" and bodies:
            self.chance.choice(bodies).well = False
        elif wish == "change":
            self.chance.choice(self.ways).update(how(self.chance))
        elif wish == "wait":
            await self.stage.clock.advance(self.chance.choice([0.01, 0.5, 3, 11]))
        elif wish in wishes:
            self.tasks.append(asyncio.ensure_future(wishes[wish]()))  # type: ignore[no-untyped-call]
        await asyncio.sleep(0)


def is_sound(supervisor: Supervisor) -> bool:
    """One instance per slot, two while it is replaced; and no wanted slot is forgotten."""
    for slot in supervisor.slots.values():
        lives = supervisor.lives_of(slot)
        forgotten = slot.is_wanted and slot.live is None and not slot.is_awaited and not lives
        if len(lives) > 1 + slot.busy.locked() or forgotten:
            return False
    return True


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("seed", range(8))
async def test_any_order_of_anything(stage: Stage, strategy: Strategy, seed: int) -> None:
    """W-07, W-19, W-49, W-51, W-65: all at once."""
    monkey = Monkey(stage, seed, strategy)
    supervisor = monkey.supervisor
    await stage.during(supervisor.start())
    for _ in range(STEPS):
        await monkey.press()
    await stage.clock.advance(200)
    results = await stage.during(asyncio.gather(*monkey.tasks, return_exceptions=True))
    strange = [one for one in results if isinstance(one, BaseException)]
    assert [one for one in strange if not isinstance(one, DetentError)] == []
    await stage.clock.until(lambda: is_sound(supervisor), 1_000)
    await stage.during(supervisor.stop(), 100)
    assert supervisor.lives == {}
    assert stage.journal.unended() == []
    assert_legal(stage)


def assert_legal(stage: Stage) -> None:
    instances = {entry.instance for entry in stage.journal.read(0) if entry.event}
    assert instances
    for instance in instances:
        record = None
        for event in stage.journal.history(str(instance)):
            assert doubted(record, event) is None
            after = apply(record, event)
            assert broken(record, event, after) is None
            record = after
        assert record is not None
        assert record.state.is_terminal
        assert WorkerState(record.state) is record.state
