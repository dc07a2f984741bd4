"""What whoever starts should be told once: promises that do not hold here, and keys that are gone.

It is a small part of what `examined` looks at, and never keeps anybody from starting.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

from detent.engine.doctor.keys import lost, unopened_at_start
from detent.engine.engine import Engine
from detent.errors import DetentError
from detent.stores.checks import Candid, Check

_log = logging.getLogger(__name__)


async def doubts(engine: Engine) -> Sequence[Check]:
    """What is wrong; each of it is in the log from now on."""
    found = [one async for one in _found(engine)]
    for one in found:
        _log.warning("%s: %s. To mend it: %s", one.found, one.why, one.mend)
    return found


async def _found(engine: Engine) -> AsyncIterator[Check]:
    try:
        if isinstance(engine.store, Candid):
            for one in await engine.store.doubts():
                yield one
        if missing := await unopened_at_start(engine):
            yield lost(missing)
    except DetentError as error:
        # Whoever needs the store hears that by themselves.
        _log.info("nobody could look for faults at the start: %s", error)
