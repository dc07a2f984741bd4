"""The loops of worker processes: of uvloop where there is one, which does the same in less time.

In programs of others loops are theirs to choose, and a loop in C does not like to be left running
when the interpreter ends. A worker process closes what it has opened.
"""

from __future__ import annotations

import asyncio

try:
    import uvloop
except ImportError:
    new_loop = asyncio.new_event_loop
else:
    new_loop = uvloop.new_event_loop
