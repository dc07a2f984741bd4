"""A seeded driver that lives random job lives: the same rules under Hypothesis and under a seed.

Every step asks something of one job at a random moment: mostly what a well-behaved world would ask,
often enough something stale, early, late or forbidden. After each step the whole history is
replayed and every promise is checked, so a broken rule shows at the step that broke it.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from detent.lifecycle import job as j
from detent.lifecycle.event import By, Event
from detent.lifecycle.job.waking import next_wake
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.profile import PROFILES, Deadlines
from detent.lifecycle.replay import at_time, at_version, audit
from detent.lifecycle.retry import Verdict

SECOND = 1_000_000
USER, SYSTEM = By(Actor.USER, "ada"), By(Actor.SYSTEM, "upkeep")


class Life:
    """One job, its history, and the little world around it."""

    def __init__(self, rng: Random, seen: Counter[tuple[str | None, str, str | None]]) -> None:
        self.rng = rng
        self.seen = seen
        self.now = 1_000 * SECOND
        self.place = 0
        self.commands = 0
        self.job: j.Job | None = None
        self.events: list[Event] = []
        self.lease: j.Lease | None = None
        self.old_leases: list[str] = []
        self.gate = j.OPEN

    def step(self) -> None:
        """One random thing happens, and everything promised still holds."""
        self._pass_time()
        if self.job is None:
            self._take(j.decide(None, self._enqueue(), self.now, self._ctx(USER)))
        elif self.rng.random() < 0.3:
            self._upkeep(self.job)
        else:
            command, by = self._command(self.job)
            self._take(j.decide(self.job, command, self.now, self._ctx(by)))

    @property
    def is_over(self) -> bool:
        return self.job is not None and self.job.ended_at is not None

    def _pass_time(self) -> None:
        roll = self.rng.random()
        if roll < 0.03:
            self.now -= self.rng.randrange(10 * SECOND)
        elif roll < 0.6:
            self.now += self.rng.randrange(3 * SECOND)
        elif roll < 0.7:
            self.now += self.rng.randrange(60 * SECOND)

    def _enqueue(self) -> j.Enqueue:
        rng, profile = self.rng, self.rng.choice(sorted(PROFILES))
        return j.Enqueue(
            id=f"job-{rng.randrange(10**9)}",
            profile=profile,
            delivery=rng.choice([None, None, "pull", "push"]),
            priority=rng.randrange(-2, 3),
            run_at=rng.choice([None, None, self.now - 1, self.now + rng.randrange(9 * SECOND)]),
            expires_at=rng.choice([None, None, None, self.now + rng.randrange(60 * SECOND)]),
            allowed=None if profile == "rest" else rng.choice([None, 1, 2, 5]),
            deadlines=rng.choice([None, Deadlines(), self._deadlines()]),
            held=rng.random() < 0.1,
            rerun_of=rng.choice([None, None, "job-0"]),
        )

    def _deadlines(self) -> Deadlines:
        return Deadlines(*(self.rng.randrange(1, 30 * SECOND) for _ in range(3)))

    def _upkeep(self, job: j.Job) -> None:
        if self.rng.random() < 0.1:
            self.gate = self.rng.choice(
                [j.OPEN, j.Gate(closed=True), j.Gate(opened_at=self.now), j.Gate(False, None, True)]
            )
        if self.rng.random() < 0.15 and self.lease is not None:
            self.lease = j.Lease(self.lease.until, lost=not job.wire)
        ctx = self._ctx(SYSTEM)
        answer = j.tick(job, self.now, ctx)
        bound = next_wake(job, self.now, gate=self.gate, lease=self.lease)
        told = self.gate.queue_deleted or (self.lease is not None and self.lease.lost)
        if isinstance(answer, j.Accepted):
            assert told or (bound is not None and bound <= self.now), "next_wake was too late"
        self._take(answer)

    def _command(self, job: j.Job) -> tuple[Any, By]:
        rng = self.rng
        worker = By(Actor.WORKER, job.holder or "w")
        lease = job.lease
        if rng.random() < 0.1:
            lease = rng.choice([*self.old_leases, None, "never"])
        holder = rng.choice([None, None, job.holder, "stranger"])
        said = {"lease": lease, "holder": holder}
        asked = self._taking(job, worker) + self._reports(said, worker) + self._users()
        fitting = [one for one in asked if self._fits(job, one[0])]
        command, by = rng.choice(fitting if fitting and rng.random() < 0.8 else asked)
        if rng.random() < 0.05:
            by = rng.choice([USER, SYSTEM, worker])
        return command, by

    def _fits(self, job: j.Job, command: Any) -> bool:
        return any(
            source == job.state and event == command.event for source, event, _ in j.JOB.triples
        )

    def _taking(self, job: j.Job, worker: By) -> list[tuple[Any, By]]:
        wire = self.rng.random() < 0.5
        lease = f"lease-{job.version}"
        lease_us = self.rng.choice([None, 5 * SECOND])
        taken = (lease, f"w{self.rng.randrange(3)}", wire, lease_us)
        push = job.delivery == "push"
        return [(j.Dispatch(*taken), SYSTEM) if push else (j.Claim(*taken), worker)] * 6

    def _reports(self, said: dict[str, Any], worker: By) -> list[tuple[Any, By]]:
        rng = self.rng
        cause = rng.choice([j.Cause.CONFIRMED, j.Cause.KILLED, j.Cause.ABANDONED, j.Cause.TTL])
        return [
            (j.Acknowledge(**said), worker),
            (j.Receive(**said, start_us=rng.randrange(20 * SECOND)), worker),
            (j.Complete(**said, digest="d"), worker),
            (j.Fail(**said, code="boom", digest="d"), worker),
            (j.Fail(**said, code="INTERRUPTED"), rng.choice([worker, SYSTEM])),
            (j.Refuse(**said, code="busy"), worker),
            (j.Snooze(**said, delay_us=(later := rng.choice([0, 5 * SECOND, -1]))), worker),
            (j.HandBack(**said, delay_us=later), rng.choice([worker, SYSTEM])),
            (j.Lose(**said, code=rng.choice([None, "worker_death"])), rng.choice([worker, SYSTEM])),
            (j.ConfirmCancel(**said, cause=cause), worker),
            (j.SeeCancel(**said), rng.choice([worker, SYSTEM])),
            (j.Interrupt(**said), rng.choice([worker, SYSTEM])),
            (j.Checkpoint(**said, digest="d"), rng.choice([worker, USER])),
        ]

    def _users(self) -> list[tuple[Any, By]]:
        rng, owner = self.rng, self.rng.choice([USER, SYSTEM])
        cause = rng.choice([j.Cause.REQUESTED, j.Cause.WORKFLOW, j.Cause.POISON])
        return [
            (j.Cancel(cause, force=rng.random() < 0.2), owner),
            (j.Hold(), owner),
            (j.Activate(), owner),
            (j.Reprioritise(rng.randrange(-2, 3)), USER),
            (j.Reschedule(self.now + rng.randrange(9 * SECOND)), owner),
            (j.Move(rng.choice(["default", "other"])), owner),
            (j.Annotate("d"), rng.choice([USER, By(Actor.WORKER, "w")])),
            (j.Erase(), owner),
            (j.Drop(rng.choice([j.Cause.OVERFLOW, j.Cause.QUEUE_DELETED, j.Cause.TTL])), SYSTEM),
        ]

    def _ctx(self, by: By) -> j.Context:
        self.place += 1
        self.commands += 1
        verdict = self.rng.choice(
            [
                Verdict(retry=True, delay_us=self.rng.randrange(9 * SECOND), cause=None),
                Verdict(retry=True, delay_us=0, cause=None),
                Verdict(retry=False, delay_us=0, cause="not_retryable"),
            ]
        )
        lease = self.lease
        if self.job is None or self.job.lease is None:
            lease = self.rng.choice([j.Lease(self.now + 15 * SECOND)] * 9 + [j.Lease(0, True)])
        elif lease is not None and not lease.lost and self.rng.random() < 0.3:
            self.lease = lease = j.Lease(self.now + 10 * SECOND)
        return j.Context(
            by, f"c{self.commands}", self.place, lease, self.gate, verdict, reason="because"
        )

    def _take(self, answer: j.Answer) -> None:
        """Accept the answer and hold it to every promise."""
        before = self.job
        if isinstance(answer, Refusal):
            assert answer.message
            return
        if isinstance(answer, j.Unchanged):
            assert answer.job is before
            return
        self.job = answer.job
        self.events.extend(answer.events)
        self._remember(answer)
        self._check_history(before, answer)

    def _remember(self, answer: j.Accepted) -> None:
        for event in answer.events:
            self.seen[(event.source, event.name, event.target)] += 1
            if event.lease is not None:
                self.old_leases.append(event.lease)
        taken = [event for event in answer.events if event.lease is not None]
        if taken:
            length = taken[0].lease_us or 15 * SECOND
            self.lease = j.Lease(self.now + length)

    def _check_history(self, before: j.Job | None, answer: j.Accepted) -> None:
        assert j.fold(self.events) == self.job == answer.job
        assert audit(self.events, self.job) is None
        assert at_version(self.events, answer.events[0].version - 1) == before
        assert at_time(self.events, self.events[-1].at) == self.job
        assert len({event.command_id for event in answer.events}) == 1
        ends = [event for event in self.events if event.target in j.JOB.terminal]
        assert len(ends) == (1 if self.is_over else 0)
        times = [event.at for event in self.events]
        assert times == sorted(times)


def live(rng: Random, seen: Counter[tuple[str | None, str, str | None]], steps: int) -> Life:
    """One whole life: until it ends, and a little beyond, because an ended job must stay ended."""
    life = Life(rng, seen)
    beyond = 0
    for _ in range(steps):
        life.step()
        beyond += life.is_over
        if beyond > 8:
            break
    return life
