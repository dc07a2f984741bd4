"""What operators tell a fleet, heard in its store and carried out on its tree."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from detent.engine.directives import Directive, Verb
from detent.engine.engine import Engine
from detent.errors import DetentError, StoreError, UnknownSlot
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.runtime.bridge import Bridge
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.spec import KEEPER
from detent.runtime.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from detent.app.fleet.fleet import Fleet

_log = logging.getLogger("detent.fleet")
_LOOK_S: Final = 0.5
_SUSPEND_S: Final = 30.0
_ANSWER_S: Final = 2.0
_AGAIN_S_MAX: Final = 5.0


class Commands:
    """Listens for one fleet."""

    def __init__(self, fleet: Fleet, engine: Engine, bridge: Bridge) -> None:
        self._fleet = fleet
        self._directives = engine.directives
        self._bridge = bridge
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Look, carry out, answer; until called off. One that takes long holds up no other."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(_LOOK_S)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Whoever told the last worker to stop is answered before the fleet is gone."""
        tasks = list(self._under_way.values())
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=_ANSWER_S)
        finally:
            for task in tasks:
                task.cancel()

    async def _look(self) -> None:
        try:
            told = await self._bridge.reach(self._directives.waiting(self._fleet.id))
        except StoreError as error:
            _log.debug("nobody can be heard now: %s", error)
            return
        for wish in told:
            if wish.id not in self._under_way:
                self._under_way[wish.id] = asyncio.create_task(self._carry_out(wish))
        waiting = {wish.id for wish in told}
        self._under_way = {
            name: task
            for name, task in self._under_way.items()
            if name in waiting or not task.done()
        }

    async def _carry_out(self, wish: Directive) -> None:
        _log.info("%s %s, says %s: %s", wish.verb, wish.slot or "all", wish.by, wish.reason or "-")
        error = None
        try:
            await self._done(wish)
        except DetentError as fault:
            error = f"{fault.message} [{fault.code}]"
        await self._answer(wish, error)

    async def _answer(self, wish: Directive, error: str | None) -> None:
        """Whoever asked waits for it: a store that is away is told when it is back."""
        pause = _LOOK_S
        while True:
            try:
                return await self._bridge.reach(self._directives.answer(wish, error))
            except StoreError as fault:
                _log.warning("the answer to %s could not be given yet: %s", wish.verb, fault)
                if not fault.retryable:
                    return None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _AGAIN_S_MAX)

    async def _done(self, wish: Directive) -> None:
        if wish.verb is Verb.RELOAD:
            await self._fleet.reload()
            return
        supervisor, by = self._fleet.supervisor, By(Actor.USER, wish.by)
        names = (
            [wish.slot] if wish.slot else [n for n in supervisor.slots if n.startswith("worker-")]
        )
        _need_worker(supervisor, wish.slot)
        if (leaving := _leaving(supervisor, wish)) is not None:
            usual_s = supervisor.lives[leaving].spec.stop_grace_s
            asked_s = usual_s if wish.grace_s is None else wish.grace_s
            await supervisor.halt(leaving, 0 if wish.verb is Verb.KILL else asked_s, by)
            return
        acts = [_ACTS[wish.verb](supervisor, name, wish, by) for name in names]
        done = await asyncio.gather(*acts, return_exceptions=True)
        for error in done:
            if error is not None:
                raise error


def _need_worker(supervisor: Supervisor, name: str) -> None:
    """Whoever stops the one that listens is heard by nobody any more."""
    slot = supervisor.slots.get(name)
    if slot is not None and slot.spec.role == KEEPER:
        why = f"{name} is a part of the supervisor itself: stop or restart that"
        raise UnknownSlot(why, slot=name)


def _leaving(supervisor: Supervisor, wish: Directive) -> Live | None:
    """The very instance that is meant, if another has its place already."""
    if not wish.instance:
        return None
    found = next((live for live in supervisor.lives if live.id == wish.instance), None)
    if found is None:
        why = f"Worker {wish.instance} has ended. If whoever has its place is meant: {wish.slot}"
        raise UnknownSlot(why, slot=wish.slot)
    if supervisor.lives[found].live is found:
        return None
    if wish.verb not in (Verb.KILL, Verb.STOP):
        why = f"Worker {wish.instance} is on its way out: it can only be told to stop, or be killed"
        raise UnknownSlot(why, slot=wish.slot)
    return found


_Act = Callable[[Supervisor, str, Directive, By], Awaitable[None]]
_ACTS: dict[Verb, _Act] = {
    Verb.SUSPEND: lambda tree, name, wish, by: tree.suspend(
        name, _SUSPEND_S if wish.grace_s is None else wish.grace_s, by=by
    ),
    Verb.RESUME: lambda tree, name, _, by: tree.resume(name, by=by),
    Verb.STOP: lambda tree, name, wish, by: tree.stop_slot(name, wish.grace_s, by=by),
    Verb.START: lambda tree, name, *_: tree.start_slot(name),
    Verb.RESTART: lambda tree, name, wish, _: tree.restart(name, wish.grace_s),
    Verb.KILL: lambda tree, name, _, by: tree.kill(name, by=by),
}
