"""Long walks in pieces: what is rare among very many is looked for without holding anybody up.

A job that few have anything in common with (an old type, an empty queue) stands in no index of its
own: to find it all others are walked over. A piece is a statement of some milliseconds; between two
of them the connection, its snapshot and the thread are free for others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from detent.lifecycle.job.table import IN_HANDS, PARKED, JobState
from detent.stores.api import Key, Stored
from detent.stores.select import Filter, Page

LOOK: Final = 10_000
"""How many jobs one piece walks over."""


RARE_STATES: Final = (
    JobState.DISCARDED,
    JobState.CANCELLED,
    JobState.RETRYABLE,
    JobState.SCHEDULED,
)
"""States that few jobs are in, whatever a queue has behind it: an index has only these."""


class Piece(NamedTuple):
    """What a piece of the walk has found, and after which job the next begins, if there is one."""

    found: list[Stored]
    after: Key | None = None


def is_narrow(chosen: Filter) -> bool:
    """Whether jobs of a tenant may have to be passed over, however few are wanted."""
    return chosen.tenant is not None and chosen != Filter(tenant=chosen.tenant)


def shortest(chosen: Filter) -> str:
    """The statement that walks over the fewest jobs."""
    if chosen.only is not None:
        return f"found_{chosen.only}"
    if chosen.tag is not None:
        return "found_tagged"
    if chosen.workflow is not None:
        return "found_in_workflow"
    if chosen.held and chosen.state in PARKED:
        return "found_on_hold"
    if chosen.state in IN_HANDS:
        return "found_held"
    return "found_rare" if chosen.state in RARE_STATES else "found"


async def walked(read: Callable[[Page], Awaitable[Piece]], page: Page) -> list[Stored]:
    """The jobs of a page, piece by piece."""
    piece, looked = await read(page), LOOK
    found = piece.found
    while piece.after is not None and len(found) < page.limit:
        if page.look is not None and looked >= page.look:
            break
        rest = replace(page, limit=page.limit - len(found), after=piece.after)
        piece, looked = await read(rest), looked + LOOK
        found += piece.found
    return found
