"""Claims: one statement finds, locks and moves the jobs; what it writes was decided by the lifecycle.

The lifecycle is asked once per profile, about a job that stands for all that the statement can find:
available, open, not expired. Its answer is what the statement writes, and the contract's tests compare
every claimed record with the decision about that very record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from detent.lifecycle import job as j
from detent.lifecycle.job import Lease
from detent.lifecycle.profile import PROFILES, Delivery
from detent.stores.api import Claimed, Stored, Want
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.rows import stored_of

__all__ = ["asked", "claim", "claimed"]

_encode = msgspec.json.Encoder().encode
_ALIVE: Final = Lease(2**62)


class _Holding(msgspec.Struct, frozen=True):
    """The facts of a claim's event that are the same for every profile."""

    lease: str
    holder: str
    wire: bool


def asked(want: Want, now: int) -> dict[str, Any]:
    """The wish as the parameters of a claim."""
    spans = _spans(want, now)
    return {
        "tenant": want.tenant,
        "queues": list(dict.fromkeys(want.queues)),
        "types": None if want.types is None else list(want.types),
        "profiles": list(spans),
        "lease_spans": list(spans.values()),
        "leases": want.leases,
        # Without its last brace, so that the length of the lease can follow.
        "rests": [
            _encode(_Holding(one, want.holder, want.wire))[:-1].decode() for one in want.leases
        ],
        "wanted": len(want.leases),
        "holder": want.holder,
        "wire": want.wire,
        "actor": want.by.kind,
        "actor_id": want.by.id,
        "command_id": want.command_id,
        "now": now,
    }


def _spans(want: Want, now: int) -> dict[str, int | None]:
    """The profiles that may be claimed, and how long a lease on a job of each is."""
    wanted = PROFILES if want.profiles is None else [p for p in want.profiles if p in PROFILES]
    spans: dict[str, int | None] = {}
    for profile in wanted if want.leases else ():
        command = j.Claim(want.leases[0], want.holder, want.wire, want.lease_us)
        ctx = j.Context(want.by, want.command_id, lease=_ALIVE)
        answer = j.decide(_standing(profile), command, now, ctx)
        if isinstance(answer, j.Accepted):
            spans[profile] = answer.job.lease_us
    return spans


def _standing(profile: str) -> j.Job:
    """A job that stands for all of its profile which a claim can find."""
    return j.Job(
        tenant="",
        id="any",
        version=1,
        state=j.JobState.AVAILABLE,
        profile=profile,
        queue="any",
        priority=0,
        delivery=Delivery.PULL,
        allowed=1,
        losses_allowed=1,
        created_at=0,
        state_at=0,
        last_at=0,
        place=0,
        enqueued_at=0,
        ready_at=0,
    )


async def claim(connection: Connection, want: Want, now: int) -> Claimed:
    """As many jobs as there are leases; the same wish again answers the jobs that hold them."""
    rows = await connection.fetch("claim", **asked(want, now))
    _, claims, is_again, *_ = rows[0]
    return await claimed(connection, want, claims, is_again, [row[3:] for row in rows])


async def claimed(
    connection: Connection, want: Want, claims: bool, is_again: bool, rows: Sequence[Sequence[Any]]
) -> Claimed:
    """The answer to a wish, from what its statement found."""
    if not claims:
        return Claimed(lost=True)
    if is_again:
        return Claimed(await _claimed_before(connection, want))
    return Claimed(tuple(stored_of(row) for row in rows if row[0] is not None))


async def _claimed_before(connection: Connection, want: Want) -> tuple[Stored, ...]:
    """The reply to this very wish was lost: the jobs that hold its leases are the answer."""
    rows = await connection.fetch(
        "claimed_before", leases=want.leases, holder=want.holder, tenant=want.tenant
    )
    return tuple(stored_of(row) for row in rows)
