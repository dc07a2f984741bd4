"""Everything a waiting job must get past before it runs, each with a verdict and a sentence. Pure.

The claim itself looks at the same things, in the database; this is the same question asked for
people, so it also looks at what no claim asks: is there anybody who would claim it, and when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from detent.engine.keeping import name_in
from detent.engine.schedule import Changed
from detent.engine.secrets import keys_of
from detent.engine.telling import counted, told_at, told_span
from detent.lifecycle import workflow as w
from detent.lifecycle.job import OPEN, Gate
from detent.lifecycle.job.table import TIMED
from detent.lifecycle.profile import Delivery
from detent.lifecycle.worker import WorkerState
from detent.lifecycle.workflow import Flow, Step
from detent.lifecycle.workflow.standing import is_running
from detent.stores.api import Limited, Stored, WorkerRow
from detent.stores.limits import Limit, free_at, room

_LATE_US = 2_000_000
"""A job that is due for longer than that should have been moved: upkeep fires within 200 ms."""


_QUIET = (WorkerState.SUSPENDED, WorkerState.STOPPING)
"""States in which a worker that is alive takes nothing in."""
_START = {
    "worker": "Start one with detent up or detent worker; who fetches over HTTP is not seen here.",
    "engine": "Connect one to /engine.",
}
_NAMED = 3
"""How many workers are named; more are counted."""


class Verdict(StrEnum):
    """Whether the job gets past; `unknown` where nothing that is recorded could tell."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    UNKNOWN = "unknown"


class Hurdle(msgspec.Struct, frozen=True):
    """One condition; `clears_at` is when it is likely to be met, if anybody can tell."""

    name: str
    verdict: Verdict
    says: str
    clears_at: int | None = None


class Door(msgspec.Struct, frozen=True):
    """A gate, and who moved it last."""

    gate: Gate = OPEN
    latest: Changed | None = None


class Ahead(msgspec.Struct, frozen=True):
    """How many jobs go first; `is_all` is false when the counting was broken off.

    `pace_us` is how much time passed from one end to the next, of late, in this queue.
    """

    number: int = 0
    is_all: bool = True
    pace_us: int | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read to find out, at one moment."""

    stored: Stored
    now: int
    queue: Door = Door()
    type: Door = Door()
    flow: Flow | None = None
    limits: tuple[Limited, ...] = ()
    ahead: Ahead = Ahead()
    workers: tuple[WorkerRow, ...] = ()


def hurdles(facts: Facts) -> tuple[Hurdle, ...]:
    """All of them, in the order in which they are worth looking at."""
    found = [_due(facts), _lifetime(facts), _held(facts)]
    found += [_paused("queue", facts.stored.job.queue, facts.queue)]
    found += [_paused("type", facts.stored.body.type, facts.type)]
    found += _in_workflow(facts)
    found += [_limited(one, facts.now) for one in facts.limits]
    return (*found, _worker(facts), _turn(facts), _tenant(facts))


def in_the_way(found: Sequence[Hurdle]) -> list[Hurdle]:
    """Those that the job does not get past now."""
    return [one for one in found if one.verdict is Verdict.FAIL]


def expected_at(found: Sequence[Hurdle], now: int) -> int | None:
    """When it may start: as soon as the last of them clears, if all of them do by themselves."""
    ends = [one.clears_at for one in in_the_way(found)]
    known = [end for end in ends if end is not None]
    return max([now, *known]) if len(known) == len(ends) else None


def _passed(name: str, says: str) -> Hurdle:
    return Hurdle(name, Verdict.PASS, says)


def _failed(name: str, says: str, clears_at: int | None = None) -> Hurdle:
    return Hurdle(name, Verdict.FAIL, says, clears_at)


def _due(facts: Facts) -> Hurdle:
    job, now = facts.stored.job, facts.now
    if job.state not in TIMED or job.run_at is None:
        since = job.ready_at or job.state_at
        return _passed("due", f"Its time has come; it has been ready for {told_span(now - since)}.")
    if job.run_at > now:
        why = "It starts" if job.returned_by is None else f"After {job.returned_by} it goes on"
        wait = told_span(job.run_at - now)
        return _failed("due", f"{why} at {told_at(job.run_at)}, in {wait}.", job.run_at)
    late = told_span(now - job.run_at)
    doubt = " Is any server of this store running?" if now - job.run_at > _LATE_US else ""
    return _failed("due", f"It was due {late} ago and nobody has moved it yet.{doubt}", now)


def _lifetime(facts: Facts) -> Hurdle:
    expires_at, now = facts.stored.job.expires_at, facts.now
    if expires_at is None:
        return _passed("lifetime", "It may wait for ever.")
    if expires_at > now:
        return _passed("lifetime", f"It may wait until {told_at(expires_at)}.")
    return _failed("lifetime", f"Its time was over at {told_at(expires_at)}: it will be discarded.")


def _held(facts: Facts) -> Hurdle:
    if facts.stored.job.held:
        return _failed("held", "It is held until somebody releases it.")
    return _passed("held", "It is not held.")


def _paused(what: str, name: str, door: Door) -> Hurdle:
    if door.gate.queue_deleted:
        return _failed(what, f"Its {what} {name} was deleted: it will be discarded.")
    if not door.gate.closed:
        return _passed(what, f"Its {what} {name} is not paused.")
    last = door.latest
    since = "" if last is None else f" by {last.actor_id or last.actor} at {told_at(last.at)}"
    why = "" if last is None or not last.reason else f": {last.reason}"
    return _failed(what, f"Its {what} {name} was paused{since}{why}.")


def _in_workflow(facts: Facts) -> Iterator[Hurdle]:
    job, flow = facts.stored.job, facts.flow
    if flow is None or job.step is None:
        return
    workflow, step = flow.workflow, flow.steps[job.step]
    if is_running(workflow):
        yield _passed("workflow", f"Its workflow {workflow.id} is {workflow.state}.")
    else:
        yield _failed("workflow", f"Its workflow {workflow.id} is {workflow.state}.")
    yield _in_step(flow, step)


def _in_step(flow: Flow, step: Step) -> Hurdle:
    name = name_in(step.workflow, step.id)
    if step.state in (w.StepState.PENDING, w.StepState.IN_PROGRESS):
        return _passed("step", f"Its step {name} is {step.state}.")
    if w.outlooks(flow)[step.id].is_unrunnable:
        return _failed("step", f"Its step {name} will never run: it will be cancelled.")
    before = [name_in(one.workflow, one.id) for one in _unfinished(flow, step)]
    after = f": it comes after {', '.join(before)}" if before else ""
    wants = "waits for an approval" if step.state is w.StepState.WAITING else "is not open yet"
    return _failed("step", f"Its step {name} {wants}{after}.")


def _unfinished(flow: Flow, step: Step) -> list[Step]:
    steps = [flow.steps[one] for one in step.depends_on]
    return [one for one in steps if one.ended_at is None]


def _limited(limited: Limited, now: int) -> Hurdle:
    row, limit = limited.row, limited.row.limit or Limit()
    name, used = f"{row.kind} limit", _used(limited, limit, now)
    if room(limit, limited.used, limited.active, now):
        return _passed(name, f"The limit of {row.kind} {row.name} has room: {used}.")
    clears_at = free_at(limit, limited.used, limited.active, now)
    when = "when one of them ends" if clears_at is None else f"at {told_at(clears_at)}"
    return _failed(
        name, f"The limit of {row.kind} {row.name} is used up: {used}. Free {when}.", clears_at
    )


def _used(limited: Limited, limit: Limit, now: int) -> str:
    parts = []
    if limit.concurrency is not None:
        parts.append(f"{limited.active} of {limit.concurrency} run")
    if limit.rate is not None:
        started = room(Limit(rate=limit.rate, period_us=limit.period_us), limited.used, 0, now)
        span = told_span(limit.period_us)
        parts.append(f"{limit.rate - started} of {limit.rate} started within {span}")
    if limit.spacing_us is not None:
        parts.append(f"one every {told_span(limit.spacing_us)}")
    return ", ".join(parts)


def _worker(facts: Facts) -> Hurdle:
    """Whether anybody is there who would take it, by what those who are alive have said."""
    alive = [row for row in facts.workers if is_alive(row, facts.now)]
    who = "engine" if facts.stored.job.delivery is Delivery.PUSH else "worker"
    if not alive:
        latest = max((row.alive_until for row in facts.workers), default=None)
        ago = "" if latest is None else f"; the last was heard of before {told_at(latest)}"
        return _failed("worker", f"No {who} is alive{ago}. {_START[who]}")
    job, body = facts.stored.job, facts.stored.body
    taking = [row.id for row in alive if takes(row, job.tenant, job.queue, body.type)]
    if taking:
        return _passed("worker", f"{_some(taking)} would take it.")
    silent = [row.id for row in alive if row.who is None]
    if silent:
        says = (
            f"{counted(len(silent), who)} alive; which queues and types they take is not recorded."
        )
        return Hurdle("worker", Verdict.UNKNOWN, says)
    what = f"type {body.type} from queue {job.queue}"
    names = _some([row.id for row in alive])
    says = f"{counted(len(alive), who)} alive, none takes {what}: {names}."
    if keys_of(body.payload):
        says += " Its arguments are secret: who has no key does not take it."
    return _failed("worker", says)


def is_alive(row: WorkerRow, now: int) -> bool:
    """Whether it was heard of in time."""
    return not row.lost and row.alive_until > now


def takes(row: WorkerRow, tenant: str, queue: str, type: str) -> bool:  # noqa: A002
    """Whether it has said that it takes such jobs, and takes any now."""
    who = row.who
    if who is None or row.state in _QUIET:
        return False
    said = ((who.queues, queue), (who.types, type), (who.tenants, tenant))
    return all(words is None or word in words for words, word in said)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def _turn(facts: Facts) -> Hurdle:
    ahead, queue = facts.ahead, facts.stored.job.queue
    if not ahead.number and not ahead.is_all:
        says = f"More jobs are ready in queue {queue} than were looked at"
        return _failed("turn", f"{says}, so nobody can say how many of them go first.")
    if not ahead.number:
        return _passed("turn", f"It is the next one in queue {queue}.")
    more = "" if ahead.is_all else "at least "
    says = f"{more}{counted(ahead.number, 'job')} in queue {queue} go first"
    says = says[0].upper() + says[1:]
    if ahead.pace_us is None:
        return _failed("turn", f"{says}; none has ended of late, so nobody can say how long.")
    wait = ahead.number * ahead.pace_us
    about = f"{says}; at the pace of late that takes {told_span(wait)}."
    return _failed("turn", about, facts.now + wait if ahead.is_all else None)


def _tenant(facts: Facts) -> Hurdle:
    tenant = facts.stored.job.tenant
    if not tenant:
        return _passed("tenant", "It belongs to the default tenant.")
    said = [row.who for row in facts.workers if row.who is not None and not row.lost]
    if any(who.tenants is None or tenant in who.tenants for who in said):
        return _passed("tenant", f"Workers of its tenant {tenant} are there.")
    says = f"Only workers of tenant {tenant} take it; whose they are is not recorded."
    return Hurdle("tenant", Verdict.UNKNOWN, says)
