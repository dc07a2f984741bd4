"""Discards jobs that a limit keeps waiting, if they asked for that.

Such a job says so in its metadata, and the limit that it stands under has a small record that tells
of such jobs, written before the first of them: nobody looks for them where there are none. They go
when a claim has met them and passed them by, whoever has claimed; each as it was seen then, so that
one that somebody else takes meanwhile is theirs. Whoever dies before that leaves it to the next
claim that meets them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from detent.engine.caching import Remembered
from detent.engine.coalesce import Coalescer
from detent.engine.identity import Identity
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import (
    GateKind,
    Key,
    LimitKind,
    Move,
    Named,
    Passed,
    Record,
    Store,
    Stored,
    Unit,
    Want,
    key_of,
)
from detent.stores.gates import behind
from detent.stores.select import Filter, Only, Page

DROP: Final = "$drop"
"""Where in its metadata a job says that it is not to wait for a limit."""
KIND: Final = "dropping"
_MARK: Final = f'"{DROP}"'
_PAGE: Final = 1_000
_PAGES_MAX: Final = 10
"""How many of those that wait under a limit one claim looks through."""
_WHY: Final = "its limit had no room, and it does not wait for any"


class _Told(msgspec.Struct):
    drop: bool = msgspec.field(name=DROP, default=False)


_decode = msgspec.json.Decoder(_Told).decode


class Dropping:
    """Lets jobs go that limits keep back."""

    def __init__(self, store: Store, coalescer: Coalescer, identity: Identity) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._known: Remembered[Named, bool] = Remembered(self._is_told, store.now)

    async def expect(self, tenant: str, kind: LimitKind, name: str) -> None:
        """There will be such jobs under this limit."""
        limit = (tenant, kind.value, name)
        if await self._known.get(limit):
            return
        record = Record(KIND, _id(limit), 1, "{}", tenant=tenant)
        # Whoever else says so at the same time has said it too.
        await self._coalescer.commit([Unit(self._identity.id(), puts=(record,))])
        self._known.forget(limit)

    async def passed(self, want: Want, passed: Sequence[Passed]) -> None:
        """Let those go that the claim has met and passed by, and that do not wait."""
        for one in passed:
            is_own = one.kind is LimitKind.KEY or not one.key
            name = one.key if one.kind is LimitKind.KEY else one.queue
            if is_own and await self._known.get((want.tenant, one.kind.value, name)):
                async for page in self._found(want, one):
                    await self._drop(page, f"limit of {one.kind} {name}")

    async def _drop(self, found: Sequence[Stored], who: str) -> None:
        by, now, units = By(Actor.SYSTEM, who), self._store.now(), list[Unit]()
        for stored in found:
            command_id = self._identity.id()
            context = j.Context(by, command_id, reason=_WHY)
            answer = j.decide(stored.job, j.Drop(), now, context)
            # A refusal says that the job does not wait any more.
            if isinstance(answer, j.Accepted):
                move = Move(stored.job.version, answer.job, answer.events)
                units.append(Unit(command_id, moves=(move,)))
        if units:
            await self._coalescer.commit(units)

    async def _found(self, want: Want, passed: Passed) -> AsyncIterator[list[Stored]]:
        """Those that stand where the claim has passed, and would have been taken."""
        key = passed.key or None
        chosen = Filter(tenant=want.tenant, queue=passed.queue, only=Only.READY, key=key)
        after: Key | None = None
        for _ in range(_PAGES_MAX):
            page = await self._store.find(chosen, Page(_PAGE, after))
            told = [one for one in page if one.body.key == key and _does_not_wait(one, want)]
            if told:
                yield await self._open(told)
            if len(page) < _PAGE:
                break
            after = key_of(page[-1].job)

    async def _open(self, some: Sequence[Stored]) -> list[Stored]:
        """Those that no pause and no step keeps back: these have not been met."""
        rows = await self._store.gates(some[0].job.tenant)
        shut = {row.name for row in rows if row.kind is GateKind.TYPE and row.gate.closed}
        flows = await self._store.flows([(one.job.tenant, one.job.workflow or "") for one in some])
        return [
            one
            for one, flow in zip(some, flows, strict=True)
            if one.body.type not in shut and not behind(one.job, flow).closed
        ]

    async def _is_told(self, limit: Named) -> bool:
        [record] = await self._store.record([(KIND, limit[0], _id(limit))])
        return record is not None


def _id(limit: Named) -> str:
    return f"{limit[1]} {limit[2]}"


def _does_not_wait(stored: Stored, want: Want) -> bool:
    job, body = stored.job, stored.body
    if _MARK not in body.meta or not want.takes(body.type, job.profile):
        return False
    try:
        return _decode(body.meta).drop
    except msgspec.DecodeError:
        # Not everybody asks before they write metadata.
        return False
