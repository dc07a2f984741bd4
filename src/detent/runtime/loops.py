"""The interpreter of worker processes: its loops, and what it looks through for what can go.

Loops are of uvloop where there is one, which does the same in less time. In programs of others all
of that is theirs to choose, and a loop in C does not like to be left running when the interpreter
ends. A worker process closes what it has opened.
"""

from __future__ import annotations

import asyncio
import gc

try:
    import uvloop
except ImportError:
    new_loop = asyncio.new_event_loop
else:
    new_loop = uvloop.new_event_loop

__all__ = ["new_loop", "settle_in"]

_YOUNG = 5_000
"""So many new things are looked through at once: a batch of jobs is some hundred times twenty."""


def settle_in() -> None:
    """What is here when the work begins stays until the end: nobody looks through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
