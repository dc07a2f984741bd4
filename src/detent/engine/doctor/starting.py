"""What whoever starts should be told once: promises that do not hold here, and keys that are gone.

It is a small part of what `examined` looks at, and never keeps anybody from starting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from detent.engine.doctor.keys import at_start
from detent.engine.engine import Engine
from detent.errors import DetentError
from detent.stores.checks import Candid, Check, Grade

_log = logging.getLogger(__name__)
_PATIENCE_S = 5.0
"""Nobody waits any longer to begin."""


async def doubts(engine: Engine) -> Sequence[Check]:
    """What is wrong; each of it is in the log from now on."""
    found: list[Check] = []
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for one in _found(engine):
                found.append(one)  # noqa: PERF401 - what was found in time counts
    except (DetentError, TimeoutError) as error:
        # Whoever needs the store hears that by themselves.
        _log.info("nobody could look for faults at the start: %r", error)
    for one in found:
        _log.warning("%s: %s. To mend it: %s", one.found, one.why, one.mend)
    return found


async def _found(engine: Engine) -> AsyncIterator[Check]:
    if isinstance(engine.store, Candid):
        for one in await engine.store.doubts():
            yield one
    for one in await at_start(engine):
        if one.grade is not Grade.OK:
            yield one
