"""Whoever keeps the jobs may come up later than we do: a machine boots in any order.

What heals by itself is waited for, for as long as it takes, and said each time; a signal ends the
wait like everything else. What does not heal (a wrong password, no such database, missing tables)
is an error at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from detent.errors import DetentError

T = TypeVar("T")
_log = logging.getLogger("detent.fleet")
_FIRST_S: Final = 1.0
_MOST_S: Final = 15.0


async def reached(ask: Callable[[], Awaitable[T]], who: str) -> T:
    """What it answers, as soon as it does."""
    pause, has_waited = _FIRST_S, False
    while True:
        try:
            found = await ask()
        except DetentError as error:
            if not error.retryable:
                raise
            told = "nothing is started yet, because the %s is away; it is asked again in %g s: %s"
            _log.warning(told, who, pause, error)
            has_waited = True
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MOST_S)
        else:
            if has_waited:
                _log.warning("the %s is there", who)
            return found
