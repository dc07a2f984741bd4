"""What every operation of this surface needs: whose records, which job, and how to answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.trace import read as trace_in
from detent.lifecycle.profile import PROFILES, Surface
from detent.stores.api import Key, Record, Stored
from detent.surfaces.http.caller import CallerRules
from detent.surfaces.http.desk import HttpDesk, json_reply
from detent.surfaces.http.exchange import Call, Settings
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.service import Service
from detent.surfaces.http.tracing import trace_of
from detent.surfaces.ojs.envelope import shown
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.reading import Reader, Wanted, object_of

T = TypeVar("T")
CLAIMABLE: Final = tuple(
    profile.name.value for profile in PROFILES.values() if Surface.OJS in profile.claimed_over
)
"""The profiles of jobs that are fetched here; others may wait in queues of the same names."""
TRIES_MAX: Final = 100
LIMIT_MAX: Final = 200
_CURSOR = "after-"


class Desk(HttpDesk):
    """Who asks for what in the words of this surface, and how it is answered."""

    reply = staticmethod(json_reply)

    def __init__(self, service: Service, settings: Settings) -> None:
        super().__init__(service, settings)
        self.caller_rules = CallerRules("ojs", tenant_header="X-OJS-Tenant")
        self.feed_start = 0
        self.started_at = time.time_ns() // 1_000

    # --- requests -------------------------------------------------------------------------------

    def reader(self, call: Call) -> Reader:
        """Reads jobs for whoever calls."""
        return Reader(call.caller.tenant, self.now(), vetoes=self.settings.test_mode)

    def traced(self, call: Call, wanted: Wanted) -> Wanted:
        """The same, in the trace of whoever calls, unless it says itself which one it is in."""
        trace = None if trace_in(wanted.ask.meta) else trace_of(call)
        return wanted if trace is None else replace(wanted, ask=replace(wanted.ask, trace=trace))

    # --- waiting --------------------------------------------------------------------------------

    def seen(self, count: int) -> str:
        """What a claim has seen, told so that only this process takes it for its own."""
        return f"{self.started_at}.{count}"

    def seen_here(self, told: str | None) -> int | None:
        """The count, if it is one of ours."""
        mark, _, count = (told or "").partition(".")
        is_ours = mark == str(self.started_at) and count.isascii() and count.isdigit()
        return int(count) if is_ours and len(count) <= len(mark) else None

    # --- jobs -----------------------------------------------------------------------------------

    async def stored(self, call: Call, job_id: str, *, is_head: bool = False) -> Stored:
        """The job that an id stands for; what was erased is not there any more.

        A head is the record without what may be large (`ReadStore.heads`).
        """
        [found] = await self.find([(call.caller.tenant, job_id)], are_heads=is_head)
        if found is None or found.job.erased_at is not None:
            raise missing("job", job_id)
        call.caller.need_queue(found.job.queue)
        return found

    async def find(self, keys: Sequence[Key], *, are_heads: bool = False) -> list[Stored | None]:
        """The jobs of these ids.

        Only one that has ended without success can be known by others; it may be forgotten by now.
        """
        read = self.engine.store.heads if are_heads else self.engine.store.get
        found = list(await read(keys))
        over = [
            index
            for index, one in enumerate(found)
            if one is None or one.job.state in ("discarded", "cancelled")
        ]
        if over:
            newest = await self.engine.aliases.newest([keys[index] for index in over])
            moved = [(i, key) for i, key in zip(over, newest, strict=True) if key != keys[i]]
            again = await read([key for _, key in moved]) if moved else []
            for (index, _), one in zip(moved, again, strict=True):
                found[index] = one
        return found

    async def shown(self, found: Sequence[Stored]) -> list[dict[str, Any]]:
        """The envelopes of these jobs, under the ids they are known by."""
        names = await self.engine.aliases.shown([one.job for one in found])
        return [shown(one, name) for one, name in zip(found, names, strict=True)]

    # --- small records --------------------------------------------------------------------------

    async def record(self, kind: str, key: Key) -> Record | None:
        """A small record of this surface."""
        [found] = await self.engine.store.record([(kind, *key)])
        return found

    async def change(
        self,
        kind: str,
        key: Key,
        change: Callable[[Record | None], tuple[str | None, int | None] | None],
    ) -> None:
        """Change a small record as it is when the change is committed; `None` leaves it alone."""
        for _ in range(TRIES_MAX):
            record = await self.record(kind, key)
            made = change(record)
            if made is None or (record is None and made[0] is None):
                return
            version = 1 if record is None else record.version + 1
            if await self.engine.put(Record(kind, key[1], version, made[0], made[1], key[0])):
                return
        raise Problem(
            503, "unavailable", f"{key[1]} is changed by too many at once", retryable=True
        )


def read_body(call: Call, kind: type[T]) -> T:
    """The body as one of our structures; no body is an empty object."""
    try:
        return msgspec.json.decode(call.body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem(400, "invalid_payload", f"the body is no JSON object: {error}") from None


def fields_of(call: Call) -> Mapping[str, Raw]:
    """The fields of the body, if there is one."""
    return object_of(call.body) if call.body else {}


def page_of(call: Call, *, is_by_id: bool = False) -> tuple[int, int]:
    """How many are asked for, and after how many; a cursor of ours says that too."""
    query = call.query
    limit, cursor = number_in(query, "limit", 50, LIMIT_MAX), query.get("cursor")
    if not cursor or is_by_id:
        return limit, number_in(query, "offset", 0, 1_000_000, least=0)
    if not cursor.startswith(_CURSOR):
        raise invalid("cursor must be the next_cursor of a reply", field="cursor")
    return limit, number_in(
        {"cursor": cursor.removeprefix(_CURSOR)}, "cursor", 0, 1_000_000, least=0
    )


def pages(total: int, limit: int, offset: int) -> dict[str, Any]:
    """What a list says about itself, and how it goes on."""
    has_more = offset + limit < total
    told = {"total": total, "has_more": has_more, "limit": limit, "offset": offset}
    return {**told, "next_cursor": f"{_CURSOR}{offset + limit}"} if has_more else told


def number_in(query: Mapping[str, str], name: str, default: int, most: int, least: int = 1) -> int:
    """A number behind the path; more than there may be is as much as there may be."""
    text = query.get(name)
    if text is None or text == "":
        return default
    if not text.isascii() or not text.isdigit() or len(text) > len("1000000") or int(text) < least:
        raise invalid(f"{name} must be a number from {least} to {most}", field=name)
    return min(int(text), most)
