"""What every operation of this surface needs: whose jobs, which job, and how to answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from detent.lifecycle.job import JobState
from detent.stores.api import Stored, key_of
from detent.surfaces.http.desk import HttpDesk
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.rest.faults import bad, missing
from detent.surfaces.rest.shown import error_of, job_of

LINES_SHOWN_MAX: Final = 10_001
"""What one run may say, and the line that says that it wanted to say more."""
_LINES_PAGE = 1_000
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_DIGITS_MAX = 18


class Desk(HttpDesk):
    """Who asks for what in the words of this surface, and how it is answered."""

    async def stored(self, call: Call, *, is_head: bool = False) -> Stored:
        """The job of the path, or its head (`ReadStore.heads`); somebody else's is not there."""
        name = call.param("id")
        read = self.engine.store.heads if is_head else self.engine.store.get
        [found] = await read([(call.caller.tenant, name.lower())])
        if found is None or found.job.erased_at is not None:
            raise missing(name)
        call.caller.need_queue(found.job.queue)
        return found

    async def error(self, stored: Stored) -> dict[str, str] | None:
        """Why it failed, if it did."""
        if stored.job.state is not JobState.DISCARDED:
            return None
        return error_of(stored, await self.engine.store.history(key_of(stored.job)))

    async def shown(self, stored: Stored) -> dict[str, Any]:
        """The job with its log."""
        told, logs = job_of(stored, await self.error(stored)), list[str]()
        while len(logs) < LINES_SHOWN_MAX:
            most = min(_LINES_PAGE, LINES_SHOWN_MAX - len(logs))
            page = await self.engine.store.logs(key_of(stored.job), len(logs), most)
            logs += [one.line.text for one in page]
            if len(page) < most:
                break
        else:
            # Only jobs that are tried again can have said more than one run may.
            told["logsNextCursor"] = len(logs)
        told["logs"] = logs
        return told

    def reply(self, call: Call, status: int = 200, **told: Any) -> Reply:
        """What is told, with the id of the request."""
        return Reply(status, msgspec.json.encode({"requestId": call.request_id, **told}))


def with_uuid(call: Call, fresh: str) -> None:
    """Ids of requests are UUIDs here: one that is none is replaced, before anybody reads it."""
    if not UUID.fullmatch(call.request_id):
        call.request_id = fresh


def number_in(query: Mapping[str, str], name: str, default: int, most: int, least: int = 1) -> int:
    """A number that was asked for; more than there may be is as much as there may be."""
    text = query.get(name)
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX or int(text) < least:
        raise bad(f"{name} must be a number from {least} to {most}", field=name)
    return min(int(text), most)
