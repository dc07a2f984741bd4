"""Claims: one statement finds, locks and moves the jobs, as the lifecycle has decided.

The lifecycle is asked once per profile, about a job that stands for all that the statement can
find: available, open, not expired. Its answer is what the statement writes, and the contract's
tests compare every claimed record with the decision about that very record. Where limits, turns or
workflows have a say, the statement takes nothing and `granting` asks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Lease
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import PROFILES, Delivery
from detent.stores.api import Claimed, Stored, Want, key_of
from detent.stores.postgres.arrays import listed
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.ends import joined
from detent.stores.postgres.reading import get
from detent.stores.postgres.rows import stored_of

_encode = msgspec.json.Encoder().encode
_ALIVE: Final = Lease(2**62)
_ANSWERS: Final = 5
"""How many columns answer the wish as a whole."""
_ASIDES: Final = ("result", "failures", "note", "checkpoint")


class _Holding(msgspec.Struct, frozen=True):
    """The facts of a claim's event that are the same for every job."""

    holder: str
    wire: bool


class Answer(msgspec.Struct, frozen=True):
    """What the statement says beside the jobs that it took."""

    claims: bool
    is_again: bool
    is_limited: bool
    needs_care: bool
    has_missed: bool
    lanes: Sequence[int]
    """Where the jobs that it took stood, one by one."""
    rich: Sequence[int]
    """Which of them have something beside them that was not read."""


def asked(want: Want, now: int, marks: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The wish as the parameters of a claim that looks behind these marks."""
    spans = spans_of(want)
    state, event = (
        (j.JobState.PENDING, j.JobEvent.DISPATCH)
        if want.push
        else (j.JobState.ACTIVE, j.JobEvent.CLAIM)
    )
    return {
        "tenant": want.tenant,
        "queues": list(dict.fromkeys(want.queues)),
        "types": None if want.types is None else list(want.types),
        "profiles": list(spans),
        "lease_spans": listed(spans.values()),
        "leases": joined(want.leases),
        "first_lease": min(want.leases),
        "last_lease": max(want.leases),
        # After the lease, and without its last brace, so that the length of the lease can follow.
        "rest": f",{_encode(_Holding(want.holder, want.wire))[1:-1].decode()}",
        "wanted": len(want.leases),
        "holder": want.holder,
        "wire": want.wire,
        "actor": want.by.kind,
        "actor_id": want.by.id,
        "command_id": want.command_id,
        "delivery": Delivery.PUSH if want.push else Delivery.PULL,
        "is_push": want.push,
        "state": state,
        "event": event,
        "now": now,
        **marks,
    }


def spans_of(want: Want) -> dict[str, int | None]:
    """The profiles that may be claimed, and how long a lease on a job of each is."""
    wanted = PROFILES if want.profiles is None else [p for p in want.profiles if p in PROFILES]
    how = (want.push, want.wire, want.lease_us, want.by.kind)
    answers = {profile: _decided(profile, *how) for profile in wanted}
    return {profile: job.lease_us for profile, job in answers.items() if job is not None}


@lru_cache(maxsize=256)
def _decided(
    profile: str, push: bool, wire: bool, lease_us: int | None, actor: Actor
) -> j.Job | None:
    """A job that stands for all of its profile which a claim can find, after such a claim."""
    delivery = Delivery.PUSH if push else Delivery.PULL
    standing = j.Job(
        tenant="",
        id="any",
        version=1,
        state=j.JobState.AVAILABLE,
        profile=profile,
        queue="any",
        priority=0,
        delivery=delivery,
        allowed=1,
        losses_allowed=1,
        created_at=0,
        state_at=0,
        last_at=0,
        place=0,
        enqueued_at=0,
        ready_at=0,
    )
    command = j.Dispatch if push else j.Claim
    ctx = j.Context(By(actor, "any"), "any", lease=_ALIVE)
    answer = j.decide(standing, command("any", "any", wire, lease_us), 0, ctx)
    return answer.job if isinstance(answer, j.Accepted) else None


def read(rows: Sequence[Sequence[Any]], start: int) -> tuple[Answer, Claimed]:
    """What the statement answered, from rows whose answers begin at that column."""
    number, lane, asides, job = range(start + _ANSWERS, start + _ANSWERS + 4)
    taken = [row for row in rows if row[number] is not None]
    taken.sort(key=itemgetter(number))
    claims, is_again, is_limited, needs_care, has_missed = rows[0][start:number]
    lanes, rich = [row[lane] for row in taken], [at for at, row in enumerate(taken) if row[asides]]
    answer = Answer(claims, is_again, is_limited, needs_care, has_missed, lanes, rich)
    return answer, Claimed(tuple(stored_of(row[job:]) for row in taken), lost=not claims)


async def with_asides(connection: Connection, claimed: Claimed, rich: Sequence[int]) -> Claimed:
    """The same jobs, these with what is kept beside them."""
    jobs = list(claimed.jobs)
    found = await get(connection, [key_of(jobs[at].job) for at in rich])
    for at, one in zip(rich, found, strict=True):
        if one is not None:
            beside = {name: getattr(one, name) for name in _ASIDES}
            jobs[at] = replace(jobs[at], **beside)
    return replace(claimed, jobs=tuple(jobs))


async def claimed_before(connection: Connection, want: Want) -> tuple[Stored, ...] | None:
    """The reply to this very wish was lost: the jobs that hold its leases are the answer.

    Those of another tenant are none of its business, but their leases are given away.
    """
    rows = await connection.fetch("claimed_before", leases=want.leases, holder=want.holder)
    held = [stored_of(row) for row in rows]
    return tuple(one for one in held if one.job.tenant == want.tenant) if held else None
