"""A process that holds jobs and is stopped: `python -m tests.sqlite.holder <how> <url>`.

It holds one job as a worker and one over the wire, both for a second. Told to go, it is stopped:
`writing`, in the middle of the transaction that renews both, with the turn to write in its hands;
or `idle`, with nothing begun. When somebody lets it go on, it says what it could renew, and once
it has no more to wait for, it reports both jobs as done.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from detent.stores.api import Claimed, Store, Stored, WorkerRow
from detent.stores.sqlite import SqliteStore, workers
from detent.stores.sqlite import upkeep as rows
from detent.stores.sqlite.place import path_of
from detent.stores.sqlite.transaction import Transaction
from tests.contract.making import SECOND
from tests.sqlite.child import Own, begin_together, say

NAME = "holder"


async def hold(how: str, url: str) -> None:
    """Claim, be stopped, renew, report."""
    make = Own(NAME)
    async with SqliteStore(path_of(url), make.clock) as store:
        await store.beat([WorkerRow(NAME, make.now + SECOND)], now=make.now)
        held = [*await claimed(store, make), *await claimed(store, make, wire=True)]
        begin_together()
        if how == "idle":
            os.kill(os.getpid(), signal.SIGSTOP)
        renewing = Renewal(held, make.now + 60 * SECOND, is_stopped=how == "writing")
        assert isinstance(store, SqliteStore)
        say(renewed=await store._writing().do(renewing))  # noqa: SLF001 - only there is it our turn
        sys.stdin.readline()
        stepped = await store.step(make.completing(Claimed(tuple(held))), now=make.now)
        say(outcomes=[type(one).__name__ for one in stepped.outcomes])


async def claimed(store: Store, make: Own, *, wire: bool = False) -> tuple[Stored, ...]:
    """One job, held in one way or the other."""
    want = make.want(1, holder=NAME, wire=wire, lease_us=SECOND if wire else None)
    stepped = await store.step([make.pushed()], now=make.now, want=want)
    return stepped.claimed.jobs


class Renewal:
    """The transaction in which everything is renewed, and which may stand still for a while."""

    def __init__(self, held: list[Stored], until: int, *, is_stopped: bool) -> None:
        self._wired = [one.job.lease or "" for one in held if one.job.wire]
        self._until = until
        self._is_stopped = is_stopped

    def __call__(self, tx: Transaction) -> list[bool]:
        if self._is_stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
        alive = workers.beat(tx, [WorkerRow(NAME, self._until)], self._until - 60 * SECOND)
        return alive + rows.extend(tx, [(lease, self._until) for lease in self._wired])


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
