"""Claims: the database finds the next jobs in order, the lifecycle decides each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.job import Gate
from detent.stores import flows
from detent.stores.api import Claimed, Failure, Fair, Stored, Want
from detent.stores.gates import behind
from detent.stores.judging import denied
from detent.stores.sqlite import rows
from detent.stores.sqlite.quotas import Limits, Turns
from detent.stores.sqlite.spots import Lane, Spot, spot_of
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.taking import Taking
from detent.stores.sqlite.transaction import Transaction, gate_of, read_rows, stored_at

FLIPS_MAX = 1_000
"""How many jobs of steps that opened one transaction lets in."""
SHUT_MAX = 1_000
"""How many jobs of steps that closed one claim puts out of the way before it gives up for now."""


_ALL_KEYS = "\0"
"""The key of a lane in which those of every key stand; no job has it, for it is no text."""
_decode_seqs = msgspec.json.Decoder(list[int]).decode


class _Walk(NamedTuple):
    """A lane with the job that comes first in it now, ordered as a claim takes them."""

    turn: int
    priority: int
    place: int
    id: str
    lane: Lane
    seq: int
    rest: Iterator[Sequence[Any]]


def claim(tx: Transaction, want: Want, now: int) -> Claimed:
    """As many jobs as there are leases; the same wish again answers the jobs that hold them."""
    nothing = denied(want, tx.known.worker_lease, now)
    if nothing is not None:
        return nothing
    tx.pending.flush()
    again = _claimed_before(tx, want)
    if again is not None:
        return Claimed(again)
    let_in(tx)
    return _Claim(tx, want, now).granted()


def let_in(tx: Transaction) -> None:
    """Jobs of steps that opened become claimable, the best first, so many at a time."""
    left = FLIPS_MAX
    for tenant, step, workflow in tx.execute("flipping", FLIPS_MAX).fetchall():
        flow = tx.known.flow_of(tenant, workflow)
        is_open = w.is_claimable(flow.workflow, flow.steps[step])
        done = tx.execute("flip", tenant, step, left).rowcount if is_open else 0
        left -= done
        if left <= 0:
            tx.may_be_claimable = True
            return
        tx.execute("flipped", tenant, step)


def _claimed_before(tx: Transaction, want: Want) -> tuple[Stored, ...] | None:
    """The reply to this very wish was lost: the jobs that hold its leases are the answer.

    Those of another tenant are none of its business, but their leases are given away.
    """
    leases = msgspec.json.encode(want.leases).decode()
    found = tx.execute("holding", want.holder, leases).fetchall()
    if not found:
        return None
    order = {lease: number for number, lease in enumerate(want.leases)}
    mine = sorted((order[lease], seq) for seq, lease, tenant in found if tenant == want.tenant)
    return tuple(stored_at(tx.connection, [seq for _, seq in mine]))


class _Claim:
    """One wish being granted: its leases are given away from left to right."""

    def __init__(self, tx: Transaction, want: Want, now: int) -> None:
        self._tx = tx
        self._want = want
        self._now = now
        self._limits = Limits(tx, now)
        self._turns = Turns(tx, want, now)
        self._gates: dict[tuple[str, str], Gate] = {}
        self._shut: list[int] = []
        self._taken: list[Stored] = []
        self._moved: list[flows.Moved] = []
        self._taking = Taking(tx.connection, tx.pending, want, now)

    def granted(self) -> Claimed:
        queues = list(dict.fromkeys(self._want.queues))
        # All is read before anything is written: nobody walks an index that changes.
        chosen = self._chosen(queues)
        # The first of them tells how those go that stand just like it: of these less is read.
        self._take_each(chosen[:1])
        rest, leases = chosen[1:], self._want.leases[len(self._taken) :]
        alike = self._taking.all_like_another(rest, leases)
        self._taken += alike
        self._take_each([] if alike else rest)
        self._taking.write()
        changes = flows.changes_of(self._moved)
        self._tx.writing.follow(changes, [], self._now, self._want.command_id)
        if self._shut:
            self._tx.execute_many("gate_job", [(seq,) for seq in self._shut])
        if self._is_tired:
            # Whoever was granted too little comes again at once, and finds the way shorter.
            self._tx.may_be_claimable = True
        self._limits.save()
        self._turns.save()
        is_short = len(self._taken) < len(self._want.leases)
        retry_at = self._limits.free_at if is_short else None
        return Claimed(tuple(self._taken), retry_at=retry_at, passed=self._limits.passed)

    def _take_each(self, chosen: Sequence[int]) -> None:
        found = {row[0]: (row, failed) for row, failed in read_rows(self._tx.connection, chosen)}
        for seq in chosen:
            self._take(*found[seq])

    def _chosen(self, queues: Sequence[str]) -> list[int]:
        """Queue by queue, or all at once where they take turns."""
        groups = [queues] if self._want.fair else [[queue] for queue in queues]
        chosen: list[int] = []
        for group in groups:
            missing = len(self._want.leases) - len(chosen)
            if missing > 0:
                chosen += self._next(
                    [lane for queue in group for lane in self._lanes(queue)], missing
                )
        return chosen

    def _lanes(self, queue: str) -> list[Lane]:
        """The lanes of this queue that are wanted and stand at an open gate."""
        want, lanes = self._want, list[Lane]()
        delivery = "push" if want.push else "pull"
        for kind, profile, key in self._found(queue, delivery):
            if want.takes(kind, profile):
                gate = self._gate(queue, kind)
                if not gate.closed and not gate.queue_deleted:
                    lanes.append(Lane(want.tenant, queue, delivery, kind, profile, key))
        return lanes

    def _found(self, queue: str, delivery: str) -> list[tuple[str, str, str]]:
        """The lanes that may have jobs, key by key only where somebody asks about keys."""
        where = {"tenant": self._want.tenant, "queue": queue, "delivery": delivery}
        if self._want.fair is Fair.KEYS or self._tx.known.has_limits:
            return self._tx.ask("lanes", where)
        kinds = self._tx.ask("kinds", where)
        return [(kind, profile, key) for kind, profile in kinds for key in ("", _ALL_KEYS)]

    def _gate(self, queue: str, kind: str) -> Gate:
        """The gate of a queue and a type; there may be a lane of it for every customer."""
        if (queue, kind) not in self._gates:
            found = gate_of(self._tx.connection, self._want.tenant, queue, kind)
            self._gates[queue, kind] = found
        return self._gates[queue, kind]

    def _next(self, lanes: Sequence[Lane], missing: int) -> list[int]:
        """The next jobs of these lanes, merged into one order, as far as limits let them."""
        walks = [walk for lane in lanes if (walk := self._first(lane, self._walk(lane)))]
        if len(walks) == 1 and not self._want.fair and not self._tx.known.has_limits:
            return self._straight(walks[0], missing)
        heapify(walks)
        chosen: list[int] = []
        while walks and len(chosen) < missing and not self._is_tired:
            walk = heappop(walks)
            limits = self._limits.of(walk.lane)
            if walk.turn != self._turns.of(walk.lane.queue, walk.lane.key):
                heappush(walks, walk._replace(turn=self._turns.of(walk.lane.queue, walk.lane.key)))
            elif self._limits.has_room(limits):
                chosen.append(walk.seq)
                self._limits.spend(limits)
                self._turns.serve(walk.lane.queue, walk.lane.key)
                if following := self._first(walk.lane, walk.rest):
                    heappush(walks, following)
        return chosen

    def _straight(self, walk: _Walk, missing: int) -> list[int]:
        """The same where there is one lane, and nobody to be asked about it."""
        if walk.lane.key != _ALL_KEYS:
            asked = (*walk.lane[:5], walk.lane.key or None, self._now, missing)
            seqs, stepped = self._tx.connection.execute(SQL["lane_next"], asked).fetchone()
            if not stepped:
                return _decode_seqs(seqs)
        chosen = [walk.seq]
        while len(chosen) < missing and (row := self._first_row(walk.lane, walk.rest)) is not None:
            chosen.append(row[3])
        return chosen

    @property
    def _is_tired(self) -> bool:
        """Whether this claim has found so much that is shut that others must get their turn.

        It takes what it has, for whatever comes later might stand behind what it did not look at.
        """
        return len(self._shut) >= SHUT_MAX

    def _walk(self, lane: Lane) -> Iterator[Sequence[Any]]:
        """The jobs of one lane, best first, as far as somebody asks."""
        if lane.key == _ALL_KEYS:
            return iter(self._tx.connection.execute(SQL["lane_of_keys"], (*lane[:5], self._now)))
        values = (*lane[:5], lane.key or None, self._now)
        return iter(self._tx.connection.execute(SQL["lane"], values))

    def _first(self, lane: Lane, rest: Iterator[Sequence[Any]]) -> _Walk | None:
        found = self._first_row(lane, rest)
        if found is None:
            return None
        priority, place, job_id, seq, _, _ = found
        return _Walk(self._turns.of(lane.queue, lane.key), priority, place, job_id, lane, seq, rest)

    def _first_row(self, lane: Lane, rest: Iterator[Sequence[Any]]) -> Sequence[Any] | None:
        """The next job that its step lets in; others are out of the way from now on."""
        for row in rest:
            _, _, _, seq, workflow, step = row
            if step is None:
                return None if self._is_tired else row
            if self._is_tired:
                return None
            flow = self._tx.known.flow_of(lane.tenant, workflow)
            if w.is_claimable(flow.workflow, flow.steps[step]):
                return row
            self._shut.append(seq)
        return None

    def _take(self, row: Sequence[Any], failed: tuple[Failure, ...]) -> None:
        """Like one that stood just like it, or by a decision of its own."""
        lease = self._want.leases[len(self._taken)]
        stored = self._taking.like_another(row, failed, lease)
        if stored is None:
            self._decide(row, rows.stored_of(row, failed), lease)
        else:
            self._taken.append(stored)

    def _decide(self, row: Sequence[Any], stored: Stored, lease: str) -> None:
        want, job = self._want, stored.job
        alive = self._tx.known.worker_lease(want.holder)
        ctx = j.Context(want.by, want.command_id, lease=alive, gate=self._gate_of(stored))
        answer = j.decide(job, want.command(lease), self._now, ctx)
        if isinstance(answer, j.Accepted):
            self._taken.append(self._write(row, stored, answer))

    def _gate_of(self, stored: Stored) -> Gate:
        job = stored.job
        gate = self._gate(job.queue, stored.body.type)
        if job.workflow is None or job.step is None:
            return gate
        return behind(job, self._tx.known.flow_of(job.tenant, job.workflow), gate)

    def _write(self, row: Sequence[Any], stored: Stored, answer: j.Accepted) -> Stored:
        job, body, pending, seq = answer.job, stored.body, self._tx.pending, row[0]
        wake_at = j.next_wake(job, self._now)
        self._taking.write()
        self._taking.learn(row, answer, wake_at)
        pending.add_row("job_taken", rows.taken_row(job, wake_at, seq, stored.job.version))
        pending.record(answer.events)
        if job.wire and job.lease is not None:
            pending.add("lease_put", job.lease, self._now + (job.lease_us or 0), seq)
        if row[-1]:
            pending.add("unique_move", str.__str__(job.state), seq)
        after = spot_of(job, body.type, body.key)
        pending.count(Spot(after.lane, str.__str__(stored.job.state)), after)
        if job.workflow is not None:
            self._moved.append((stored.job, job))
        return replace(stored, job=job, wake_at=wake_at)
