"""Which jobs an operator means, and which page of them is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from detent.lifecycle.job.table import JobState
from detent.stores.api import Key, Stored, key_of
from detent.stores.select import Filter, Page
from detent.surfaces.http.exchange import Call
from detent.surfaces.ojs.desk import Desk, number_in, read_body
from detent.surfaces.ojs.faults import invalid

SEEN_MAX: Final = 10_000
"""How many jobs a list looks at, or a bulk verb changes, in one request."""
STATES: Final = tuple(state.value for state in JobState)
_ADMIN: Final = "/ojs/v1/admin/"
_PAGE: Final = 1_000
_PER_PAGE_MAX: Final = 100


class Chosen(msgspec.Struct, frozen=True):
    """What the jobs have in common."""

    queue: str | None = None
    state: str | None = None
    type: str | None = None
    tag: str | None = None
    ids: list[str] | None = None


class _Many(msgspec.Struct, frozen=True):
    filter: Chosen = Chosen()
    job_ids: list[str] | None = None
    confirm: bool = False


async def confirmed(desk: Desk, call: Call) -> Sequence[Stored]:
    """The jobs that a body names, by their ids or otherwise, if it says that it means them."""
    asked = read_body(call, _Many)
    is_named = asked.job_ids is not None and not call.path.startswith(_ADMIN)
    if not asked.confirm and not is_named:
        raise invalid("confirm must be true: this is about many jobs", field="confirm")
    if asked.job_ids is not None:
        if asked.filter != Chosen() or len(asked.job_ids) > SEEN_MAX:
            why = f"either filter or job_ids, at most {SEEN_MAX} of them"
            raise invalid(why, field="job_ids")
        keys = [(call.caller.tenant, name) for name in asked.job_ids]
        some = await desk.find(keys)
        return [one for one in some if one is not None and call.caller.may_use(one.job.queue)]
    return await fitting(desk, call, asked.filter)


async def fitting(desk: Desk, call: Call, chosen: Chosen) -> list[Stored]:
    """The newest jobs that fit, as many as one request may look at."""
    if chosen.state is not None and chosen.state not in STATES:
        raise invalid(f"state must be one of {', '.join(STATES)}", field="state")
    wanted = Filter(
        tenant=call.caller.tenant,
        queue=chosen.queue,
        state=chosen.state,
        type=chosen.type,
        tag=chosen.tag,
    )
    fits: list[Stored] = []
    after: Key | None = None
    while len(fits) < SEEN_MAX:
        page = await desk.engine.store.find(wanted, Page(_PAGE, after))
        fits += [one for one in page if one.job.erased_at is None]
        if len(page) < _PAGE:
            break
        after = key_of(page[-1].job)
    return [one for one in fits if call.caller.may_use(one.job.queue)]


def paged(call: Call, items: Sequence[Any]) -> dict[str, Any]:
    """The page that is asked for, and how many there are."""
    query = call.query
    page = number_in(query, "page", 1, 1_000_000)
    per_page = number_in(query, "per_page", 20, _PER_PAGE_MAX)
    first = (page - 1) * per_page
    pages = {"total": len(items), "page": page, "per_page": per_page}
    return {"items": list(items[first : first + per_page]), "pagination": pages}
