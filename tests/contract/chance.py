"""A world of chance: pushes, claims, reports, losses and mishaps, asked of two stores at once.

The same actions are used by Hypothesis, which shrinks what it finds, and by a seeded driver, which
reaches everything. Whatever is asked was decided by the lifecycle, on a record as it is or as it
was a while ago, or has been asked before, because its answer is imagined to be lost.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import PROFILES, Deadlines
from detent.lifecycle.retry import Verdict
from detent.stores.api import (
    Body,
    Death,
    Due,
    Failure,
    Fair,
    GateKind,
    GateRow,
    Idempotency,
    Life,
    Line,
    Move,
    Process,
    Store,
    Unique,
    Unit,
    Want,
    Who,
    WorkerRow,
    key_of,
)
from tests.contract.living import born, onwards
from tests.contract.making import LOST, SECOND, SYSTEM, USER, forged
from tests.contract.twins import Twins

TENANTS = ("", "", "t2")
QUEUES = ("default", "default", "other")
TYPES = ("mail.send", "report")
WORKERS = ("w0", "w1", "w2")
PROCESS = Process("host", "boot", 7, 8)
# Names that are also queues, and one tag that begins like another: what is mixed up shows.
KEYS = (None, None, "default", "other")
TAGS = ("red", "re", "blue")
LIVE = ("scheduled", "available", "pending", "active", "retryable")


class Chance:
    """One world; every action takes its chances from the generator it is handed."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        self.make = twins.make
        self.units: list[Unit] = []
        self.wants: list[Want] = []
        self.seen: list[j.Job] = []
        self.dues: list[Due] = []
        self.asked: Counter[tuple[str, str]] = Counter()
        self.moments: list[int] = []

    @property
    def now(self) -> int:
        """The present moment."""
        return self.twins.clock.now

    # --- actions ------------------------------------------------------------------------------

    async def push(self, rng: Random) -> None:
        """New jobs, some under an id, a fingerprint or a key that is in use."""
        await self._step(rng, [self._pushed(rng) for _ in range(rng.randrange(1, 4))])

    async def command(self, rng: Random) -> None:
        """Commands on records as they are, and sometimes as they were."""
        units = [self._commanded(rng, await self._job(rng)) for _ in range(rng.randrange(1, 4))]
        await self._step(rng, [unit for unit in units if unit is not None])

    async def replace(self, rng: Random) -> None:
        """One job or two go, another comes, in one unit."""
        jobs = {key_of(job): job for job in [await self._job(rng), await self._job(rng)] if job}
        command, call_off = self.make.command_id(), j.Cancel(j.Cause.REPLACED, force=True)
        moves = []
        for job in jobs.values():
            ctx = self.make.ctx(SYSTEM, command_id=command)
            answer = j.decide(job, call_off, self.now, ctx)
            if isinstance(answer, j.Accepted):
                moves.append(self.make.moved(job, answer))
        new = self.make.new(**self._claiming(rng), command_id=command)
        await self._step(rng, [self.make.inserting(new, moves=moves)])

    async def claim(self, rng: Random) -> None:
        """A wish, alone or together with a unit."""
        want = self._want(rng)
        self.wants.append(want)
        units = [self._pushed(rng)] if rng.random() < 0.3 else []
        await self._step(rng, units, want)

    async def again(self, rng: Random) -> None:
        """Something that was asked before, as if its answer had been lost."""
        units = [rng.choice(self.units)] if self.units else []
        want = rng.choice(self.wants[-3:]) if self.wants and rng.random() < 0.5 else None
        await self._step(rng, units, want)

    async def tick(self, rng: Random) -> None:
        """What is due is handed out and answered, at once, later or never."""
        hold_us = rng.choice([1, SECOND // 2, 60 * SECOND])
        due = await self.twins.both(lambda store: self._due(store, hold_us))
        self.dues += due
        answered = [one for one in self.dues if rng.random() < 0.8]
        self.dues = [one for one in self.dues if one not in answered and rng.random() < 0.5]
        await self._step(rng, [self.make.ticking(one) for one in answered])

    async def rearm(self, rng: Random) -> None:
        """Nothing but `wake_at` moves, on a record as it is or was."""
        jobs = {key_of(job): job for job in [await self._job(rng), await self._job(rng)] if job}
        wake_at = rng.choice([None, self.now + rng.randrange(9 * SECOND)])
        moves = tuple(Move(job.version, job, wake_at=wake_at) for job in jobs.values())
        await self._step(rng, [Unit(self.make.command_id(), moves=moves)])

    async def beat(self, rng: Random) -> None:
        """Workers say that they are alive; some are lost and do not know it."""
        until = self.now + rng.choice([0, 5, 15, 60]) * SECOND
        who = rng.choice([None, Who(supervisor=rng.choice("st"), process=PROCESS)])
        state, renews = rng.choice(["", "running"]), rng.random() < 0.2
        rows = [
            WorkerRow(one, until, who=who, state=state, renews=renews)
            for one in WORKERS
            if rng.random() < 0.7
        ]
        await self.twins.both(lambda store: store.beat(rows, now=self.now))

    async def lose(self, rng: Random) -> None:
        """Somebody is declared lost, rightly or not."""
        lost = [one for one in (*WORKERS, "unheard-of") if rng.random() < 0.3]
        await self.twins.both(lambda store: store.declare_lost(lost, now=self.now))

    async def bury(self, rng: Random) -> None:
        """Somebody says that they know of an end, rightly or not; the long gone are forgotten."""
        words: list[dict[str, Any]] = [{"supervisor": "s"}, {"process": PROCESS}, {}]
        dead = [Death(one, **rng.choice(words)) for one in WORKERS if rng.random() < 0.3]
        await self.twins.both(lambda store: store.bury(dead, now=self.now))
        before, most = self.now - rng.choice([-1, -1, 0, 20]) * SECOND, rng.choice([1, 100])
        await self.twins.both(
            lambda store: store.forget_workers(before=before, now=self.now, limit=most)
        )

    async def supervise(self, rng: Random) -> None:
        """Things happen to worker instances, and are shipped once or twice."""
        lives = []
        for name in rng.sample(("i0", "i1", "i2", "i3"), 2):
            [known] = await self.twins.model.instances([("", name)])
            slot = rng.choice(["x", "y"])
            next_ = onwards(known, self.now, rng) if known else born(name, self.now, slot=slot)
            if next_ is not None:
                lives.append(Life(known.version if known else 0, next_.instance, next_.events))
        for _ in range(rng.choice([1, 1, 2])):
            await self.twins.both(lambda store: store.ship(lives, now=self.now))

    async def extend(self, rng: Random) -> None:
        """Leases of now and of long ago are renewed."""
        leases = [job.lease or "none" for job in rng.sample(self.seen, min(len(self.seen), 4))]
        asked = [(lease, self.now + rng.randrange(30 * SECOND)) for lease in dict.fromkeys(leases)]
        await self.twins.both(lambda store: store.extend(asked, now=self.now))

    async def gate(self, rng: Random) -> None:
        """A queue or a type is paused, goes on, or is deleted."""
        kind = rng.choice(list(GateKind))
        name = rng.choice(QUEUES if kind is GateKind.QUEUE else TYPES)
        words = [j.Gate(closed=True), j.Gate(opened_at=self.now), j.OPEN]
        word = rng.choice([*words, words[1], j.Gate(queue_deleted=kind is GateKind.QUEUE)])
        rows = [GateRow(kind, name, word, rng.choice(TENANTS))]
        unit = Unit(self.make.command_id(), gates=tuple(rows))
        await self.twins.both(lambda store: store.step([unit], now=self.now))

    async def log(self, rng: Random) -> None:
        """Lines are written for jobs that are there and for some that are not."""
        jobs = [await self._job(rng) for _ in range(3)]
        keys = [key_of(job) for job in jobs if job is not None] + [("", "nobody")]
        lines = [(key, Line(self.now, f"line {number}")) for number, key in enumerate(keys)]
        await self.twins.both(lambda store: store.append_logs(lines))

    async def pass_time(self, rng: Random) -> None:
        """Time passes, mostly forwards, and often to the very moment when something is due."""
        roll = rng.random()
        wakes = [one.wake_at or 0 for one in (await self.twins.everything()).values()]
        wakes += self.moments
        coming = [at - self.now for at in wakes if 0 < at - self.now < 60 * SECOND]
        if roll < 0.1:
            self.twins.clock.move(-rng.randrange(4 * SECOND))
        elif coming and roll < 0.5:
            self.twins.clock.move(rng.choice(coming))
        else:
            self.twins.clock.move(rng.randrange(3 * SECOND if roll < 0.8 else 40 * SECOND))

    async def look(self, _: Random) -> None:
        """The rarer questions."""
        await self.twins.compare_views()

    async def break_rules(self, rng: Random) -> None:
        """A unit that no store may hold."""
        if rng.random() < 0.3:
            new = self.make.new(**self._born(rng))
            broken = self.make.inserting(forged(new, priority=rng.choice([2**63, -(2**64)])))
        else:
            unit = self._pushed(rng)
            new, event = unit.new[0], unit.new[0].events[0]
            wrongs: list[dict[str, Any]] = [
                {"target": "completed"},
                {"version": 2},
                {"record": "somebody-else"},
            ]
            events = (replace(event, **rng.choice(wrongs)), *new.events[1:])
            broken = replace(unit, new=(replace(new, events=events),))
        await self.twins.both(lambda store: store.step([broken], now=self.now))

    # --- asking -------------------------------------------------------------------------------

    async def _step(self, rng: Random, units: list[Unit], want: Want | None = None) -> None:
        self.units += units
        if rng.random() < 0.05 and units:
            units = [*units, units[0]]
        stepped = await self.twins.both(lambda store: store.step(units, now=self.now, want=want))
        self.seen += [stored.job for stored in stepped.claimed.jobs]
        if stepped.claimed.retry_at is not None:
            self.moments = [*self.moments[-3:], stepped.claimed.retry_at]

    async def _due(self, store: Store, hold_us: int) -> list[Due]:
        due = await store.take_due(now=self.now, limit=1_000, hold_us=hold_us)
        return sorted(due, key=lambda one: key_of(one.stored.job))

    async def _job(self, rng: Random) -> j.Job | None:
        """A record as it is, or one as it was a while ago."""
        if self.seen and rng.random() < 0.15:
            return rng.choice(self.seen)
        records = await self.twins.everything()
        if not records:
            return None
        # Often one of the last few again: what needs several moves in a row is rare otherwise.
        recent = [records[key_of(job)] for job in self.seen[-3:] if key_of(job) in records]
        chosen = recent if recent and rng.random() < 0.4 else list(records.values())
        live = [one for one in chosen if one.job.ended_at is None]
        if rng.random() < 0.3:
            # One in a state that few are in: some last for a moment only.
            there = Counter(one.job.state for one in live)
            live = [one for one in live if there[one.job.state] == min(there.values())]
        job = rng.choice(live if live and rng.random() < 0.9 else chosen).job
        self.seen.append(job)
        return job

    # --- making -------------------------------------------------------------------------------

    def _pushed(self, rng: Random) -> Unit:
        command = self.make.command_id()
        births = [self._claiming(rng) for _ in range(rng.choice([1, 1, 1, 1, 2]))]
        return self.make.inserting(*(self.make.new(**one, command_id=command) for one in births))

    def _claiming(self, rng: Random) -> dict[str, Any]:
        """A birth that may lay claim to an id, a fingerprint or a key that is in use."""
        more = self._born(rng)
        if rng.random() < 0.1 and self.seen:
            more["id"] = rng.choice(self.seen).id
        if rng.random() < 0.3:
            states = rng.choice([LIVE, ("available",), ("completed", "active")])
            since = rng.choice([None, self.now - 5 * SECOND])
            more["unique"] = Unique(rng.choice("fg"), states, since)
        if rng.random() < 0.2:
            until = self.now + rng.randrange(20 * SECOND)
            more["idempotency"] = Idempotency(rng.choice("kl"), rng.choice("de"), until)
        return more

    def _born(self, rng: Random) -> dict[str, Any]:
        profile = rng.choice(sorted(PROFILES))
        limits = Deadlines(*(rng.randrange(1, 30 * SECOND) for _ in range(3)))
        return {
            # No order in the ids: what goes by place must not look right by id.
            "id": f"{rng.randrange(10**9):09}",
            "profile": profile,
            "tenant": rng.choice(TENANTS),
            "queue": rng.choice(QUEUES),
            "priority": rng.randrange(-1, 2),
            "delivery": rng.choice([None, None, *PROFILES[profile].deliveries]),
            "run_at": rng.choice([None, None, None, self.now + rng.randrange(9 * SECOND)]),
            "expires_at": rng.choice([None, None, self.now + rng.randrange(1, 60 * SECOND)]),
            "deadlines": rng.choice([None, Deadlines(), limits]),
            "held": rng.random() < 0.1,
            "allowed": None if profile == "rest" else rng.choice([None, 3]),
            "body": self._body(rng),
            **self._home(rng),
        }

    def _body(self, rng: Random) -> Body:
        text, tags = f'[ {rng.random()},"\\u00e4" ]', rng.sample(TAGS, rng.randrange(3))
        return Body(rng.choice(TYPES), text, tags=tuple(tags), key=rng.choice(KEYS))

    def _home(self, _: Random) -> dict[str, Any]:
        """The step that a job is born into, if any."""
        return {}

    def _want(self, rng: Random) -> Want:
        wire, push = rng.random() < 0.4, rng.random() < 0.2
        holder = rng.choice(["remote", *WORKERS]) if wire else rng.choice(WORKERS)
        return self.make.want(
            rng.randrange(4),
            holder=holder,
            by=SYSTEM if push else By(Actor.WORKER, holder),
            push=push,
            fair=rng.choice([None, None, *Fair]),
            wire=wire,
            tenant=rng.choice(TENANTS),
            lease_us=rng.choice([None, rng.randrange(1, 20 * SECOND)]) if wire else None,
            queues=rng.choice([("default",), ("other", "default"), ("default", "other")]),
            types=rng.choice([None, None, TYPES[:1]]),
            profiles=rng.choice([None, None, ("python", "ojs", "rest")]),
        )

    def _commanded(self, rng: Random, job: j.Job | None) -> Unit | None:
        """The first of a few commands that the lifecycle accepts."""
        if job is None:
            return None
        for _ in range(5):
            command, by = self._asked(rng, job)
            answer = j.decide(job, command, self.now, self._ctx(rng, command, by))
            if isinstance(answer, j.Accepted):
                self.asked[job.state, command.event] += 1
                move = self.make.moved(job, answer, **self._told(rng, job, command))
                return self.make.moving(self._aside(rng, move))
        return None

    def _ctx(self, rng: Random, command: j.Command, by: By) -> j.Context:
        """The row behind the lease as the caller hopes it to be; the store will look for itself."""
        delays = [
            Verdict(True, rng.randrange(9 * SECOND), None),
            Verdict(False, 0, "not_retryable"),
        ]
        lease = LOST if isinstance(command, j.Lose) else j.Lease(self.now + SECOND)
        return self.make.ctx(by, lease=lease, verdict=rng.choice(delays))

    def _told(self, rng: Random, job: j.Job, command: j.Command) -> dict[str, Any]:
        if isinstance(command, j.Dispatch):
            return {} if command.wire else {"taken_by": command.holder}
        lease = job.lease if isinstance(command, j.Report) else None
        if rng.random() < 0.03:
            lease = "a-lease-of-nobody"
        return {"lease": lease, "lost": isinstance(command, j.Lose)}

    def _aside(self, rng: Random, move: Move) -> Move:
        """A result, an error or a line goes with it now and then."""
        roll = rng.random()
        if roll < 0.1:
            # Some results are kept for ever; the others go one after the other.
            until = None if roll < 0.02 else self.now + int(roll * 400 * SECOND)
            return replace(move, result=f"{roll}", result_until=until)
        if roll < 0.15:
            return replace(move, checkpoint=f"{roll}", meta=f"{roll}")
        if roll < 0.25:
            return replace(move, failure=Failure(move.job.attempt, self.now, "code", f"{roll}"))
        return replace(move, lines=(Line(self.now, "said"),)) if roll < 0.35 else move

    def _asked(self, rng: Random, job: j.Job) -> tuple[Any, By]:
        """Something that this state knows, mostly."""
        asked = self._reports(rng, job) + self._wishes(rng) + self._offers(rng, job)
        known = [one for one in asked if (str(job.state), str(one[0].event)) in _KNOWN]
        if known and rng.random() < 0.5:
            # What was asked least often so far: chance alone hardly ever reaches the rare edges.
            rng.shuffle(known)
            known = [min(known, key=lambda one: self.asked[job.state, one[0].event])]
        return rng.choice(known or asked)

    def _offers(self, rng: Random, job: j.Job) -> list[tuple[Any, By]]:
        wire = rng.random() < 0.5
        holder = "remote" if wire else rng.choice(WORKERS)
        lease_us = rng.choice([None, 5 * SECOND]) if wire else None
        offer = j.Dispatch(f"D-{job.tenant}-{job.id}-{job.version}", holder, wire, lease_us)
        return [(offer, SYSTEM)] * 6 if job.delivery == "push" else []

    def _reports(self, rng: Random, job: j.Job) -> list[tuple[Any, By]]:
        worker, said = By(Actor.WORKER, job.holder or "w"), {"lease": job.lease}
        holder = rng.choice([worker, SYSTEM])
        cause = rng.choice([j.Cause.CONFIRMED, j.Cause.KILLED, j.Cause.ABANDONED])
        return [
            (j.Acknowledge(**said), worker),
            (j.Receive(**said, start_us=rng.randrange(1, 20 * SECOND)), worker),
            (j.Complete(**said, digest="d"), worker),
            (j.Fail(**said, code="boom", digest="d"), worker),
            (j.Refuse(**said, code="busy"), worker),
            (j.Snooze(**said, delay_us=(later := rng.choice([0, 5 * SECOND]))), worker),
            (j.HandBack(**said, delay_us=later), holder),
            (j.Lose(**said), holder),
            (j.ConfirmCancel(**said, cause=cause), worker),
            (j.SeeCancel(**said), holder),
            (j.Interrupt(**said), holder),
            (j.Checkpoint(**said, digest="d"), worker),
        ]

    def _wishes(self, rng: Random) -> list[tuple[Any, By]]:
        owner = rng.choice([USER, SYSTEM])
        return [
            (j.Cancel(), owner),
            (j.Hold(), owner),
            (j.Activate(), owner),
            (j.Reprioritise(rng.randrange(-2, 3)), USER),
            (j.Reschedule(self.now + rng.randrange(9 * SECOND)), owner),
            (j.Move(rng.choice(QUEUES)), owner),
            (j.Annotate("d"), USER),
            (j.Checkpoint(digest="d"), USER),
            (j.Erase(), owner),
            (j.Drop(), SYSTEM),
        ]


_KNOWN = {(source, event) for source, event, _ in j.JOB.triples}
