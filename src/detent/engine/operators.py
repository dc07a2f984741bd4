"""What people do to jobs, queues and limits by hand: each verb says who did it, and why."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.engine import switches
from detent.engine.asks import Ask, born
from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX, Change, Commands
from detent.engine.enqueueing import Clash, Enqueued, Enqueueing
from detent.engine.identity import Identity
from detent.engine.limits import need_name
from detent.engine.rerunning import once, rerun_ask, unreadable, unrepeatable
from detent.engine.schedule import Changed
from detent.engine.secrets import Owner
from detent.engine.verbs import Rerun, RunNow, Verb, command_of, softened
from detent.errors import SecretUnreadable, StoreBusy, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Gate
from detent.lifecycle.machine import Refusal
from detent.stores.api import (
    Committed,
    GateKind,
    GateRow,
    Key,
    Limit,
    LimitKind,
    LimitRow,
    Own,
    StaleRecord,
    Store,
    Stored,
    Unit,
)


class Operators:
    """Verbs for single jobs, queues and limits. Those for many jobs are in `engine/bulk.py`."""

    def __init__(
        self,
        store: Store,
        commands: Commands,
        enqueueing: Enqueueing,
        coalescer: Coalescer,
        identity: Identity,
    ) -> None:
        self._store = store
        self._commands = commands
        self._enqueueing = enqueueing
        self._coalescer = coalescer
        self._identity = identity

    # --- jobs -----------------------------------------------------------------------------------

    async def cancel(self, key: Key, by: By, reason: str | None = None) -> j.Answer:
        """Call it off; one that runs is asked to stop, as its profile has it."""
        [answer] = await self._commands.carry_out([Change(key, j.Cancel(), by, reason)])
        return answer

    async def apply(
        self, verb: Verb, keys: Sequence[Key], by: By, reason: str | None = None
    ) -> list[j.Answer | Enqueued | Clash]:
        """The same verb to many jobs; an answer for each, in order."""
        if isinstance(verb, Rerun):
            return list(await self._rerun(verb, keys, by, reason))
        command = command_of(verb, self._store.now())
        changes = [Change(key, command, by, reason) for key in keys]
        answers = await self._commands.carry_out(changes)
        if not isinstance(verb, RunNow):
            return list(answers)
        found = await self._store.get(keys)
        return [softened(verb, *one) for one in zip(answers, found, strict=True)]

    def foresee(
        self, verb: Verb, found: Sequence[Stored], by: By, reason: str | None = None
    ) -> list[j.Answer | Enqueued | Clash]:
        """What the verb would do to these jobs as they are, decided but not committed."""
        return [self._foreseen(verb, stored, by, reason) for stored in found]

    def _foreseen(
        self, verb: Verb, stored: Stored, by: By, reason: str | None
    ) -> j.Answer | Enqueued:
        now, ids = self._store.now(), self._identity
        ctx = j.Context(by, ids.id(), place=ids.place(), reason=reason)
        if isinstance(verb, Rerun):
            made = self._barred(stored, by) or born(rerun_ask(stored, reason), ids.id(), now, ctx)
            return made if isinstance(made, Refusal) else Enqueued(made.job)
        answer = j.decide(stored.job, command_of(verb, now), now, ctx)
        return softened(verb, answer, stored)

    async def _rerun(
        self, verb: Rerun, keys: Sequence[Key], by: By, reason: str | None
    ) -> list[Enqueued | Clash | Refusal]:
        found = await self._store.get(keys)
        refusals = [self._barred(stored, by) for stored in found]
        asks: list[Ask] = [
            rerun_ask(stored, reason)
            for stored, refusal in zip(found, refusals, strict=True)
            if stored is not None and refusal is None
        ]
        if verb.once:
            asks = [once(ask, self._store.now()) for ask in asks]
        made = iter(await self._enqueueing.enqueue(asks, by) if asks else [])
        return [refusal if refusal is not None else next(made) for refusal in refusals]

    def _barred(self, stored: Stored | None, by: By) -> Refusal | None:
        """Why there cannot be another one like it; its secrets must open, to be locked anew."""
        refusal = unrepeatable(stored, by)
        if stored is None or refusal is not None:
            return refusal
        job, body = stored.job, stored.body
        try:
            self._enqueueing.secrets.opened(body.payload, Owner(job.tenant, job.id, body.type))
        except SecretUnreadable as error:
            return unreadable(stored, by, error.message)
        return None

    # --- gates and limits -----------------------------------------------------------------------

    async def pause(
        self, kind: GateKind, name: str, by: By, reason: str | None = None, *, tenant: str = ""
    ) -> bool:
        """Let no job of the queue or type start; running ones go on. False if it was paused."""
        need_name(kind, name)
        return await self._turn_gate(kind, (tenant, name), True, by, reason)

    async def resume(
        self, kind: GateKind, name: str, by: By, reason: str | None = None, *, tenant: str = ""
    ) -> bool:
        """Let jobs of the queue or type start again; false if they could."""
        return await self._turn_gate(kind, (tenant, name), False, by, reason)

    async def set_limit(
        self,
        kind: LimitKind,
        name: str,
        limit: Limit | None,
        by: By,
        reason: str | None = None,
        *,
        tenant: str = "",
    ) -> None:
        """Bound how many jobs of the queue or key run or start; `None` lifts the limit."""
        need_name(f"limited {kind}", name)
        what = "lifted" if limit is None else "limited"
        change = Changed(self._store.now(), what, by.kind, by.id, reason)
        act = Unit("", limits=(LimitRow(kind, name, limit, tenant),))
        await self._switch((tenant, switches.name_of_limit(kind, name)), change, act)

    async def _turn_gate(
        self, kind: GateKind, key: Key, closed: bool, by: By, reason: str | None
    ) -> bool:
        tenant, name = key
        gates = {(row.kind, row.name): row.gate for row in await self._store.gates(tenant)}
        before = gates.get((kind, name), j.OPEN)
        if before.closed is closed:
            return False
        now = self._store.now()
        change = Changed(now, "paused" if closed else "resumed", by.kind, by.id, reason)
        gate = Gate(closed, before.opened_at if closed else now, before.queue_deleted)
        act = Unit("", gates=(GateRow(kind, name, gate, tenant),))
        await self._switch((tenant, switches.name_of_gate(kind, name)), change, act)
        return True

    async def _switch(self, key: Key, change: Changed, act: Unit) -> None:
        """The act and the record of it, in one commit."""
        tenant, name = key
        for _ in range(TRIES_MAX):
            [record] = await self._store.record([(switches.KIND, tenant, name)])
            puts = (switches.changed(record, key, change),)
            unit = replace(act, command_id=self._identity.id(), puts=puts)
            [outcome] = await self._coalescer.commit([unit])
            if isinstance(outcome, Committed | Own):
                return
            if not isinstance(outcome, StaleRecord):
                raise Unstorable(f"{name} cannot be stored: {outcome}", name=name)
        raise StoreBusy(f"{name} was changed by others {TRIES_MAX} times", name=name)
