"""Claims where limits, turns or workflows have a say: job by job, one claimer at a time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from hashlib import sha256
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import Gate, Lease
from detent.lifecycle.workflow import Flow
from detent.stores import flows
from detent.stores.api import Claimed, Key, Move, Stored, Want
from detent.stores.fences import is_alive
from detent.stores.gates import behind
from detent.stores.postgres import arrays
from detent.stores.postgres.claiming import claimed_before, spans_of
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.flowing import Flows, read_flows
from detent.stores.postgres.lanes import Lane
from detent.stores.postgres.quotas import Limits, Turns
from detent.stores.postgres.rows import stored_of

FLIPS_MAX: Final = 1_000
"""How many jobs of steps that opened one transaction lets in."""
NOTHING_LOCKED: Final[Mapping[Key, Flow]] = MappingProxyType({})
_ROUNDS: Final = 3
"""How often a claim looks again when others were faster at what it had chosen."""


class _Open(NamedTuple):
    """A lane that is wanted and open, and when its gates were opened."""

    number: int
    lane: Lane
    gate: Gate


class _Head(NamedTuple):
    """A job of a lane, as far as the order of claims asks."""

    priority: int
    place: int
    id: str
    workflow: str | None
    step: str | None


class _Walk(NamedTuple):
    """A lane with the job that comes first in it now, ordered as a claim takes them."""

    turn: int
    order: int
    place: int
    id: str
    number: int


async def lock(connection: Connection, want: Want) -> None:
    """Before anything else is locked: whoever claims with care waits for whoever does so now."""
    name = sha256(msgspec.json.encode(("claim", want.tenant))).digest()[:8]
    await connection.fetch("claim_lock", key=int.from_bytes(name, signed=True))


async def let_in(connection: Connection, of_tenant: str) -> bool:
    """Jobs of steps that opened become claimable, the best first; whether more are left.

    Only of one's own tenant, whose claims wait for each other: what one of them puts away because
    its step was closed, the next one finds. The workflows are locked before they are read, or an
    opening in between would be taken for what was let in already.
    """
    left = FLIPS_MAX
    rows = await connection.fetch("flipping", tenant=of_tenant, most=FLIPS_MAX)
    keys = {(tenant, workflow) for tenant, _, workflow in rows}
    found = await read_flows(connection, keys, lock=True)
    for tenant, step, workflow in rows:
        flow = found[tenant, workflow]
        is_open = w.is_claimable(flow.workflow, flow.steps[step])
        told = {"tenant": tenant, "step": step}
        if is_open:
            left -= len(await connection.fetch("flip", **told, most=left))
        if left <= 0:
            return True
        await connection.fetch("flipped", **told, is_closed=not is_open)
    return False


async def grant(
    connection: Connection, want: Want, now: int, locked: Mapping[Key, Flow] = NOTHING_LOCKED
) -> Claimed:
    """As many jobs as there are leases; the same wish again answers the jobs that hold them.

    `locked` are workflows that this transaction has locked and knows already.
    """
    told = {"holder": want.holder, "leases": want.leases, "tenant": want.tenant}
    row = await connection.fetch_row("standing", **told)
    until, lost, is_again, is_flipping, is_limited = row or (None, None, False, False, False)
    alive = Lease(0, lost=True) if until is None else Lease(until, bool(lost))
    if not want.wire and not is_alive(alive, now):
        return Claimed(lost=True)
    again = await claimed_before(connection, want) if is_again else None
    if again is not None:
        return Claimed(again)
    if is_flipping:
        await let_in(connection, want.tenant)
        locked = NOTHING_LOCKED
    return await _Grant(connection, want, now, alive).granted(locked, is_limited=is_limited)


class _Grant:
    """One wish being granted: its leases are given away from left to right."""

    def __init__(self, connection: Connection, want: Want, now: int, alive: Lease) -> None:
        self._connection = connection
        self._want = want
        self._now = now
        self._alive = alive
        self._limits = Limits(want.tenant, now)
        self._turns = Turns(want, now)
        self._open: dict[int, _Open] = {}
        self._heads: defaultdict[int, deque[_Head]] = defaultdict(deque)
        self._last: dict[int, _Head] = {}
        self._flows = Flows({})
        self._locked = NOTHING_LOCKED
        self._shut: list[str] = []
        self._passed: set[str] = set()
        self._taken: list[Stored] = []
        self._moved: list[tuple[j.Job, Move]] = []

    async def granted(self, locked: Mapping[Key, Flow], *, is_limited: bool) -> Claimed:
        want = self._want
        self._locked = locked
        self._flows.learn(dict(locked))
        await self._ask_lanes()
        lanes = [one.lane for one in self._open.values()]
        if is_limited:
            await self._limits.ask(self._connection, lanes)
        await self._turns.ask(self._connection, lanes)
        for _ in range(_ROUNDS):
            missing = len(want.leases) - len(self._taken)
            before = self._limits.copied(), self._turns.copied()
            chosen = await self._chosen(missing) if missing else []
            taken = await self._take(chosen) if chosen else []
            if len(taken) == len(chosen):
                break
            # Only what starts is counted.
            self._limits, self._turns = before
            for number in taken:
                lane = self._open[number].lane
                self._limits.spend(self._limits.of(lane))
                self._turns.serve(lane.queue, lane.key)
        await self._write()
        is_short = len(self._taken) < len(want.leases)
        retry_at = self._limits.free_at if is_short else None
        return Claimed(tuple(self._taken), retry_at=retry_at, passed=self._limits.passed)

    # --- choosing -------------------------------------------------------------------------------

    async def _ask_lanes(self) -> None:
        want = self._want
        rows = await self._connection.fetch(
            "lanes_open",
            tenant=want.tenant,
            queues=list(want.queues),
            delivery="push" if want.push else "pull",
            profiles=list(spans_of(want)),
            types=None if want.types is None else list(want.types),
        )
        for number, *names, queue_opened, type_opened in rows:
            opened = [at for at in (queue_opened, type_opened) if at is not None]
            gate = Gate(opened_at=max(opened)) if opened else j.OPEN
            self._open[number] = _Open(number, Lane(*names), gate)

    async def _chosen(self, missing: int) -> list[tuple[str, int]]:
        """Queue by queue, or all at once where they take turns; each with its lane."""
        await self._fill(list(self._open), missing)
        queues = list(dict.fromkeys(self._want.queues))
        groups = [queues] if self._want.fair else [[queue] for queue in queues]
        chosen: list[tuple[str, int]] = []
        for group in groups:
            numbers = [one.number for one in self._open.values() if one.lane.queue in group]
            if len(chosen) < missing:
                chosen += await self._next(numbers, missing - len(chosen))
        return chosen

    async def _fill(self, numbers: Sequence[int], most: int) -> None:
        """The first jobs of each lane, anew, and the workflows that they belong to."""
        self._heads.clear()
        self._last.clear()
        told = {"lanes": numbers, "now": self._now, "most": most}
        for number, *head in await self._connection.fetch("lane_heads", **told):
            self._heads[number].append(_Head(*head))
        await self._know([head for heads in self._heads.values() for head in heads])

    async def _know(self, heads: Sequence[_Head]) -> None:
        keys = {(self._want.tenant, one.workflow) for one in heads if one.workflow is not None}
        unknown = {key for key in keys if self._flows.get(key) is None}
        self._flows.learn(await read_flows(self._connection, unknown))

    async def _next(self, numbers: Sequence[int], missing: int) -> list[tuple[str, int]]:
        """The next jobs of these lanes, merged into one order, as far as limits let them."""
        walks = [walk for number in numbers if (walk := await self._first(number))]
        heapify(walks)
        chosen: list[tuple[str, int]] = []
        while walks and len(chosen) < missing:
            walk = heappop(walks)
            lane = self._open[walk.number].lane
            if walk.turn != self._turns.of(lane.queue, lane.key):
                heappush(walks, walk._replace(turn=self._turns.of(lane.queue, lane.key)))
            elif self._limits.has_room(self._limits.of(lane)):
                chosen.append((walk.id, walk.number))
                self._limits.spend(self._limits.of(lane))
                self._turns.serve(lane.queue, lane.key)
                if len(chosen) < missing and (following := await self._first(walk.number)):
                    heappush(walks, following)
        return chosen

    async def _first(self, number: int) -> _Walk | None:
        """The next job that its step lets in; others are out of the way from now on."""
        while True:
            if not self._heads[number] and not await self._refill(number):
                return None
            head = self._last[number] = self._heads[number].popleft()
            if head.id in self._passed:
                continue
            if head.workflow is None or not self._is_shut(head):
                lane = self._open[number].lane
                turn = self._turns.of(lane.queue, lane.key)
                return _Walk(turn, -head.priority, head.place, head.id, number)
            self._shut.append(head.id)

    def _is_shut(self, head: _Head) -> bool:
        flow = self._flows.get((self._want.tenant, head.workflow or ""))
        return flow is not None and not w.is_claimable(flow.workflow, flow.steps[head.step or ""])

    async def _refill(self, number: int) -> bool:
        """Jobs after the last one that was seen; whether there are any."""
        last = self._last.get(number)
        if last is None:
            return False
        rows = await self._connection.fetch(
            "lane_next",
            lane=number,
            now=self._now,
            priority=last.priority,
            place=last.place,
            id=last.id,
            most=len(self._want.leases),
        )
        self._heads[number].extend(_Head(*row) for row in rows)
        await self._know(list(self._heads[number]))
        return bool(rows)

    # --- taking ---------------------------------------------------------------------------------

    async def _take(self, chosen: Sequence[tuple[str, int]]) -> list[int]:
        """Lock what was chosen, as far as nobody else has it, and decide about each.

        The lanes of those that were taken.
        """
        tenant = self._want.tenant
        rows = await self._connection.fetch("picked", tenant=tenant, ids=[one for one, _ in chosen])
        ids = [id_ for (id_,) in rows]
        told = arrays.columns(("tenants", "ids"), [(tenant, one) for one in ids])
        stored = [stored_of(row) for row in await self._connection.fetch("stored", **told)]
        found = {one.job.id: one for one in stored}
        taken = []
        for id_, number in chosen:
            # Not to be met again: somebody else has it, or we have, and it is not written yet.
            self._passed.add(id_)
            if id_ in found and self._decide(found[id_], self._open[number].gate):
                taken.append(number)
        return taken

    def _decide(self, stored: Stored, gate: Gate) -> bool:
        want, job = self._want, stored.job
        gate = behind(job, self._flows.get((job.tenant, job.workflow or "")), gate)
        ctx = j.Context(want.by, want.command_id, lease=self._alive, gate=gate)
        command = want.command(want.leases[len(self._taken)])
        answer = j.decide(job, command, self._now, ctx)
        if not isinstance(answer, j.Accepted):
            return False
        wake_at = j.next_wake(answer.job, self._now)
        self._moved.append((job, Move(job.version, answer.job, answer.events, wake_at)))
        self._taken.append(msgspec.structs.replace(stored, job=answer.job, wake_at=wake_at))
        return True

    # --- writing --------------------------------------------------------------------------------

    async def _write(self) -> None:
        connection, want = self._connection, self._want
        if self._moved:
            moves = list(enumerate(move for _, move in self._moved))
            told = {**arrays.moves_of(moves, {}, ()), **arrays.events_of(moves)}
            await connection.fetch("move", **told, **arrays.no_asides(), now=self._now)
            events = await self._follow()
            if events:
                await connection.fetch("record", **arrays.recorded(events))
        if self._shut:
            await connection.fetch("shut", tenant=want.tenant, ids=self._shut)
        await self._limits.save(connection)
        await self._turns.save(connection)

    async def _follow(self) -> list[Event]:
        """What the workflows hear of it; they are locked only now, after the jobs."""
        changes = flows.changes_of((job, move.job) for job, move in self._moved)
        if not changes:
            return []
        known = {key: self._locked[key] for key in changes if key in self._locked}
        unknown = set(changes) - set(known)
        locked = Flows(known | await read_flows(self._connection, unknown, lock=True))
        events, _ = locked.follow(changes, [], self._now, self._want.command_id)
        await locked.save(self._connection)
        return events
