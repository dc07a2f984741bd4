"""A process of its own that is killed with a transaction open: `python -m tests.inside.child`."""

from __future__ import annotations

import asyncio
import os
import sys

from detent.stores.api import Unique
from tests.contract.making import Clock, Maker
from tests.inside.callers import CALLERS


async def hold(way: str, url: str) -> None:
    """Enqueue, say so, and wait for the end."""
    make, caller = Maker(Clock()), CALLERS[way][1]()
    await caller.open(url)
    await caller.begin()
    await caller.run("INSERT INTO orders (what) VALUES ('a')")
    unit = make.pushed(id="killed", unique=Unique("f", ("available",)))
    os.write(1, repr(await caller.enqueue(unit, make.now)).encode() + b"\n")
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], sys.argv[2]))
