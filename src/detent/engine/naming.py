"""Which job somebody means who gives only the beginning of its id."""

from __future__ import annotations

from typing import Final

from detent.errors import AmbiguousId
from detent.stores.api import Key, Store
from detent.stores.legal import is_storable

BEGINNING: Final = 8
"""How much of an id must be given: eight characters of it are the minute in which it was made."""
_SHOWN: Final = 5


async def meant(store: Store, key: Key) -> Key:
    """The key of the one job whose id begins so; the key itself if there is none.

    A whole id means that job, also if others begin with it. `AmbiguousId` names some of several.
    """
    tenant, begin = key
    [whole] = await store.get([key])
    if whole is not None or len(begin) < BEGINNING or not is_storable(begin):
        return key
    after = await store.keys(key, _SHOWN + 1)
    found = [one for one in after if one[0] == tenant and one[1].startswith(begin)]
    if len(found) > 1:
        raise await _ambiguous(store, begin, found)
    return found[0] if found else key


async def _ambiguous(store: Store, begin: str, found: list[Key]) -> AmbiguousId:
    jobs = [one for one in await store.get(found[:_SHOWN]) if one is not None]
    named = ", ".join(f"{one.job.id} ({one.body.type}, {one.job.state})" for one in jobs)
    more = " and more" if len(found) > _SHOWN else ""
    why = f"Several jobs have an id that begins with {begin}: {named}{more}. Give more of it"
    return AmbiguousId(why, ids=tuple(one.job.id for one in jobs))
