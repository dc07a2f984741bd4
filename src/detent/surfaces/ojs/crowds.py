"""Plain jobs that many push into one bounded queue at the same time: they come in together.

A bounded queue is entered by one commit after another (`pressure`). So those who wait for their
turn share one; if there is not room for all of them, those who came first come in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from detent.engine.asks import Ask, is_keyed
from detent.engine.caching import Remembered
from detent.engine.enqueueing import Clash, Enqueued, Refused
from detent.engine.entering import OUTRUN, Entry
from detent.engine.gathering import Gathering
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.stores.api import Key
from detent.surfaces.http.exchange import Call
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.configs import Config
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.faults import duplicate, of_refusal
from detent.surfaces.ojs.pressure import Enter, Headers, Pressure

_MOST: Final = 100
_CHARS_MAX: Final = 1_000_000
"""Long payloads come in smaller groups."""
_Answer: TypeAlias = tuple[Enqueued, Headers]


class _Pushed(NamedTuple):
    """A job on its way, and whose it is."""

    call: Call
    ask: Ask
    by: By


class Crowds:
    """Lets single jobs into queues."""

    def __init__(
        self, desk: Desk, pressure: Pressure, known: Remembered[Key, Config | None]
    ) -> None:
        self._desk = desk
        self._pressure = pressure
        self._known = known
        self._crowds: WeakValueDictionary[Key, Gathering[_Pushed, _Answer]] = WeakValueDictionary()

    async def let_in(self, call: Call, ask: Ask, enter: Enter[Enqueued]) -> _Answer:
        """What came of storing the job, and how full its queue is."""
        key = (call.caller.tenant, ask.queue)
        config = await self._known.get(key)
        if config is None or not config.is_bounded or is_keyed(ask):
            return await self._pressure.let_in(call, [ask], enter)
        [known] = await self._desk.engine.declared.applied([ask])
        if known.secret:
            return await self._pressure.let_in(call, [ask], enter)
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = Gathering(self._together, _MOST)
        return await crowd.ask(_Pushed(call, known, call.caller.actor))

    async def _together(self, pushed: Sequence[_Pushed]) -> list[_Answer | Exception]:
        return [answer for some in _alike(pushed) for answer in await self._entered(some)]

    async def _entered(self, some: Sequence[_Pushed]) -> list[_Answer | Exception]:
        """All of them at once; if that cannot be, as many as there is room for, then the others."""
        asks = [one.ask for one in some]
        try:
            made, told = await self._pressure.let_in(
                some[0].call, asks, partial(self._stored, some)
            )
        except Problem as problem:
            if len(some) == 1:
                return [problem]
            first = _fitting(problem, len(some))
            if not first:
                return [problem.copied() for _ in some]
            return [*await self._entered(some[:first]), *await self._entered(some[first:])]
        return [(one, told) for one in made]

    async def _stored(
        self, some: Sequence[_Pushed], entry: Entry | None
    ) -> list[Enqueued] | Refusal:
        asks = [one.ask for one in some]
        made = await self._desk.engine.enqueue_together(asks, some[0].by, entry)
        if not isinstance(made, Refused):
            return made
        if made.why is OUTRUN:
            return OUTRUN
        raise duplicate(made.why) if isinstance(made.why, Clash) else of_refusal(made.why)


def _alike(pushed: Sequence[_Pushed]) -> Iterator[Sequence[_Pushed]]:
    """Those who came one after the other from the same caller, and are not too long together."""
    begun, chars = 0, 0
    for at, one in enumerate(pushed):
        chars += len(one.ask.payload)
        if at > begun and (one.by != pushed[begun].by or chars > _CHARS_MAX):
            yield pushed[begun:at]
            begun, chars = at, len(one.ask.payload)
    yield pushed[begun:]


def _fitting(problem: Problem, number: int) -> int:
    """How many of them try again by themselves before the others; none if nobody can come in."""
    if problem.code != "QUEUE_FULL":
        return number // 2
    room: int = problem.details["room"]
    return min(room, number - 1)
