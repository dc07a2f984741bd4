"""Long polling: a fetch that waits for jobs, and whose caller may leave meanwhile."""

from __future__ import annotations

import asyncio
import time

from msgspec.structs import replace

from detent.stores.api import Claimed, Want
from detent.surfaces.http.exchange import Call, gone
from detent.surfaces.ojs.desk import Desk


async def polled(desk: Desk, call: Call, want: Want, wait_s: float) -> Claimed:
    """What can be had now; or what comes in time, to somebody who is still there."""
    until = time.monotonic() + wait_s
    claimed = await desk.engine.claim(want)
    if claimed.jobs or wait_s <= 0:
        return claimed
    leaving = asyncio.ensure_future(gone(call))
    try:
        while not claimed.jobs and (left := until - time.monotonic()) > 0:
            if claimed.retry_at is not None:
                left = min(left, max(claimed.retry_at - desk.now(), 1_000) / 1e6)
            await desk.service.wait_for_work(left, claimed.seen, leaving)
            if desk.service.stopping.is_set() or leaving.done():
                return Claimed()
            # What was in vain took nothing: the same leases are asked for under a new name.
            want = replace(want, command_id=desk.engine.identity.id())
            claimed = await desk.engine.claim(want)
        return claimed
    finally:
        leaving.cancel()
