"""The store in memory: claims, what is due, what is said, who is trusted and what is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from detent.errors import BadUrl
from detent.lifecycle import job as j
from detent.lifecycle import seal
from detent.lifecycle.merkle import skip_of
from detent.stores import api, bounds, judging
from detent.stores.api import Key, Move, Named, Stepped, Stored, Unit, Want, WorkerRow, key_of
from detent.stores.chosen import is_kept
from detent.stores.memory.reading import Reading, due, first
from detent.stores.quotas import Met, Quotas, Turns
from detent.stores.workers import LATE_US, is_believed, need_legal, newest


def connect(url: str, clock: Callable[[], int] | None = None, _: float | None = None) -> api.Store:
    """A new, empty store; its address is `memory:`. It is never away, and needs no patience."""
    if url != "memory:":
        raise BadUrl(f"A store in memory has no path: write memory: instead of {url}", url=url)
    return MemoryStore(clock)


class MemoryStore(Reading):
    """Everything in dictionaries; gone with the object, not with its closing."""

    backend = "memory"
    has_transactions = False
    _quotas, _turns = Quotas, Turns

    async def __aenter__(self) -> api.Store:
        self._inside = self._tables
        return self

    async def __aexit__(self, *_: object) -> None:
        self._inside = None
        self._bell.stop()

    async def step(self, units: Sequence[Unit], *, now: int, want: Want | None = None) -> Stepped:
        self._opened(now)
        bounds.need_size(units, want)
        outcomes = tuple(self._all.commit(unit, now) for unit in units)
        seen = self._bell.rung
        claimed = api.Claimed() if want is None else replace(self._claim(want, now), seen=seen)
        return Stepped(outcomes, claimed)

    # --- claims -----------------------------------------------------------------------------------

    def _claim(self, want: Want, now: int) -> api.Claimed:
        denied = judging.denied(want, self._all.worker_lease, now)
        again = self._claimed_before(want)
        mine = tuple(one for one in again if one.job.tenant == want.tenant)
        return denied or (api.Claimed(mine) if again else self._grant(want, now))

    def _claimed_before(self, want: Want) -> list[Stored]:
        """The reply to this very wish was lost: the jobs that hold its leases are the answer.

        Those of another tenant are none of its business, but their leases are given away.
        """
        held = {x.job.lease: x for x in self._all.jobs.values() if x.job.holder == want.holder}
        return [held[lease] for lease in want.leases if lease in held]

    def _grant(self, want: Want, now: int) -> api.Claimed:
        """The best of those that are left, again and again; the lifecycle and limits may object."""
        left = [one for one in self._all.jobs.values() if self._fits(one, want)]
        quotas, turns = self._quotas(now, self._met), self._turns(want, now, self._all.served)
        moves: list[Move] = []
        while left and len(moves) < len(want.leases):
            stored = min(left, key=lambda one: self._turn(one, want, turns))
            left = [one for one in left if one is not stored]
            answer = self._answer(stored, want.leases[len(moves)], want, now)
            limits = self._limits_of(stored)
            if isinstance(answer, j.Accepted) and quotas.has_room(limits):
                wake_at = j.next_wake(answer.job, now)
                moves.append(Move(stored.job.version, answer.job, answer.events, wake_at))
                quotas.spend(limits)
                turns.serve(stored.job.queue, stored.body.key)
        self._all.used |= quotas.used
        self._all.write(Unit(want.command_id, tuple(moves)), now)
        granted = tuple(self._all.jobs[key_of(move.job)] for move in moves)
        retry_at = quotas.free_at if len(granted) < len(want.leases) else None
        return api.Claimed(granted, retry_at=retry_at, passed=quotas.passed)

    def _met(self, name: Named) -> Met | None:
        """A limit as it stands, if there is one of that name."""
        found = self._limited(name) if name in self._all.limits else None
        return (found.row.limit or api.Limit(), found.used, found.active) if found else None

    def _fits(self, stored: Stored, want: Want) -> bool:
        job, is_free = stored.job, stored.job.state is j.JobState.AVAILABLE
        is_there = job.tenant == want.tenant and job.queue in want.queues
        return is_free and is_there and want.takes(stored.body.type, job.profile)

    def _turn(self, stored: Stored, want: Want, turns: Turns) -> tuple[int, int, int, int, str]:
        """Whoever was served longest ago, if that counts; then queue, priority, place and id."""
        job = stored.job
        queue = 0 if want.fair else want.queues.index(job.queue)
        return turns.of(job.queue, stored.body.key), queue, -job.priority, job.place or 0, job.id

    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        """What the lifecycle says to a claim; whatever it refuses is passed over."""
        row, gate = self._all.worker_lease(want.holder), self._all.gate_of(stored)
        ctx = j.Context(want.by, want.command_id, lease=row, gate=gate)
        return j.decide(stored.job, want.command(lease), now, ctx)

    # --- time, and what is said -------------------------------------------------------------------

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[api.Due]:
        jobs, handed_out = self._opened(now).jobs.items(), self._all.handed_out
        # Whatever is written to a job that was handed out frees it.
        free = ((self._due_since(one), key) for key, one in jobs if handed_out.get(key, now) <= now)
        return [self._hand_out(key, now + hold_us) for key in due(now, limit, free)]

    def _due_since(self, stored: Stored) -> int | None:
        """Its `wake_at`; a job in lost hands or in a dead step has been due since ever."""
        job, tables = stored.job, self._all
        return 0 if tables.lost_holder(job) or tables.is_swept(job) else stored.wake_at

    def _hand_out(self, key: Key, until: int) -> api.Due:
        self._all.handed_out[key] = until
        stored = self._all.jobs[key] = replace(self._all.jobs[key], wake_at=until)
        job, gate = stored.job, self._all.gate_of(stored)
        lease, holder = self._all.row_behind(job), self._all.lost_holder(job)
        return api.Due(stored, lease, gate, self._all.is_swept(job), holder)

    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[api.Record]:
        records = self._opened(now).records
        taken = due(now, limit, ((one.wake_at, name) for name, (one, _) in records.items()))
        for name in taken:
            record, command_id = records[name]
            records[name] = (replace(record, wake_at=now + hold_us), command_id)
        return [records[name][0] for name in taken]

    async def note(self, notes: Sequence[tuple[Key, str, api.Note]], *, now: int) -> Sequence[bool]:
        jobs = self._opened(now).jobs
        held = [key in jobs and jobs[key].job.lease == lease for key, lease, _ in notes]
        told = {key: note for (key, _, note), is_held in zip(notes, held, strict=True) if is_held}
        jobs |= {key: replace(jobs[key], note=note) for key, note in told.items()}
        return held

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        self._opened(now)
        return [self._extend(lease, until) for lease, until in leases]

    def _extend(self, lease: str, until: int) -> bool:
        """An end that comes earlier than anybody would look makes the job due earlier."""
        if lease not in self._all.leases:
            return False
        self._all.leases[lease] = j.Lease(until)
        for key, one in self._all.jobs.items():
            is_later = one.wake_at is None or until < one.wake_at
            if is_later and one.job.wire and one.job.lease == lease:
                self._all.jobs[key] = replace(one, wake_at=until)
                self._all.handed_out.pop(key, None)
        return True

    async def seal(self, *, limit: int = 10_000) -> seal.Block | None:
        fed = await self.feed(self._all.sealed_until, limit)
        if not fed:
            return None
        blocks, leaves = [None, *self._all.blocks], [seal.leaf(one.event) for one in fed]
        made = seal.seal(leaves, blocks[-1], blocks[skip_of(len(blocks))])
        self._all.blocks.append(made)
        self._all.leaves += zip((one.pos for one in fed), leaves, strict=True)
        return made

    async def append_logs(self, lines: Sequence[tuple[Key, api.Line]]) -> Sequence[int]:
        return [self._all.log(key, line) for key, line in lines]

    # --- worker instances -------------------------------------------------------------------------

    async def beat(self, workers: Sequence[WorkerRow], *, now: int) -> Sequence[bool]:
        self._opened(now, workers)
        alive = {row.id for row in newest(workers).values() if self._beat(row, now)}
        return [row.id in alive for row in workers]

    def _beat(self, row: WorkerRow, now: int) -> bool:
        """Whoever says that it was here before and is not known was forgotten as gone."""
        new = None if row.renews else WorkerRow(row.id, row.alive_until, who=row.who)
        known = self._all.workers.get(row.id, new)
        if known is None or known.lost:
            return False
        self._all.workers[row.id] = self._renewed(known, row, now)
        return True

    def _renewed(self, known: WorkerRow, row: WorkerRow, now: int) -> WorkerRow:
        if 0 < known.beat_at - now <= LATE_US:
            return known
        return replace(known, alive_until=row.alive_until, state=row.state, beat_at=now)

    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        self._opened(now, workers)
        for row in await self.overdue(now=now, limit=len(self._all.workers)):
            if row.id in workers:
                self._end(row, now, None)
        return [self._all.worker_lease(one).lost for one in workers]

    async def bury(self, deaths: Sequence[api.Death], *, now: int) -> Sequence[bool]:
        self._opened(now, deaths)
        return [self._bury(death, now) for death in deaths]

    def _bury(self, death: api.Death, now: int) -> bool:
        row = self._all.workers.get(death.id)
        if row is not None and not row.lost and is_believed(row.who, death):
            self._end(row, now, death)
        return self._all.worker_lease(death.id).lost

    def _end(self, row: WorkerRow, now: int, death: api.Death | None) -> None:
        self._all.workers[row.id] = replace(row, lost=True, ended_at=now, death=death)

    async def ship(self, lives: Sequence[api.Life], *, now: int) -> Sequence[bool]:
        self._opened(now, lives)
        need_legal(lives)
        return [self._ship(life) for life in lives]

    def _ship(self, life: api.Life) -> bool:
        key = (life.instance.tenant, life.instance.id)
        known = len(self._all.events.get(key, ()))
        if life.version != known or (known and key not in self._all.instances):
            return False  # It is at another version, or the name is somebody else's.
        self._all.instances[key] = life.instance
        self._all.record(life.events)
        return True

    # --- forgetting: whatever has been over for longest goes first --------------------------------

    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        busy = [self._all.lost_holder(stored.job) for stored in self._opened(now).jobs.values()]
        rows, lives = self._all.workers, self._all.instances
        busy += [rows.get(key[1]) for key, one in lives.items() if not (key[0] or one.ended_at)]
        over = [(row.ended_at, name) for name, row in rows.items() if row not in busy]
        told = [(one.ended_at, key) for key, one in lives.items() if self._all.is_sealed(key)]
        names, keys = due(before - 1, limit, over), due(before - 1, limit, told)
        self._all.workers = {name: row for name, row in rows.items() if name not in names}
        self._all.forget(keys)
        return len(names) + len(keys)

    async def prune(self, rules: Sequence[api.Retention], *, now: int, limit: int = 1_000) -> int:
        self._opened(now)
        gone = first(limit, self._ready(rules))
        self._all.forget(gone)
        for keys in first(limit, self._ready_flows(rules)):
            self._all.forget(keys)
        self._forget_promises(now)
        self._forget_turns(now - bounds.TURNS_US, limit)
        return len(gone)

    def _ready(self, rules: Sequence[api.Retention]) -> list[Key]:
        """The jobs that may go."""
        tables, jobs = self._all, self._all.jobs.values()
        told = [(one.job, [rule for rule in rules if not is_kept(rule, one)]) for one in jobs]
        over = [job for job, some in told if any(self._lets_go(rule, job) for rule in some)]
        ready = [job for job in over if tables.is_sealed(key_of(job)) and tables.is_alone(job)]
        return [key_of(job) for job in sorted(ready, key=lambda job: (job.ended_at, *key_of(job)))]

    def _lets_go(self, rule: api.Retention, job: j.Job) -> bool:
        is_meant = rule.tenant in (None, job.tenant) and rule.queue in (None, job.queue)
        is_over = job.ended_at is not None and job.ended_at < rule.before
        return is_meant and is_over and job.state == rule.state

    def _ready_flows(self, rules: Sequence[api.Retention]) -> Iterator[list[Key]]:
        """Ended workflows with their steps, without jobs and older than some rule asks for."""
        used = {(one.job.tenant, one.job.workflow) for one in self._all.jobs.values()}
        for key, flow in sorted(self._all.flows.items()):
            befores = [rule.before for rule in rules if rule.tenant in (None, key[0])]
            ended_at, keys = flow.workflow.ended_at, [key, *((key[0], step) for step in flow.steps)]
            is_old = ended_at is not None and ended_at < max(befores, default=0)
            if is_old and key not in used and all(map(self._all.is_sealed, keys)):
                yield keys

    def _forget_promises(self, now: int) -> None:
        """Idempotency keys go when they have run out, and with their job."""
        kept = [(name, it) for name, it in self._all.promises.items() if it[0].expires_at > now]
        self._all.promises = {name: it for name, it in kept if it[1] in self._all.jobs}

    def _forget_turns(self, before: int, limit: int) -> None:
        served = self._all.served
        for name in due(before - 1, limit, ((at, name) for name, at in served.items())):
            del served[name]

    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        jobs, until = self._opened(now).jobs, self._all.results_until
        over = due(now, limit, ((until[key], key) for key in jobs if jobs[key].result is not None))
        gone = [key for key in over if self._all.is_alone(jobs[key].job)]
        until |= dict.fromkeys(over, now + bounds.AGAIN_US)
        jobs |= {key: replace(jobs[key], result=None) for key in gone}
        return len(gone)
