"""Events as they happen, over SSE.

A channel is a job, a queue, or all. Whoever comes back says which event they saw last, and hears
first what they have missed. Every event has an id of its own. Frames that are none (how far a job
is, a gap, the end of the server) have no id: a reader keeps that of the last event.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from detent.engine.tail import Listener
from detent.lifecycle.job.table import ENDED
from detent.stores.api import Fed, Note, Stored, key_of
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.sse import BEAT, RETRY, Places, frame
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.event_words import change_of
from detent.surfaces.ojs.events import Events
from detent.surfaces.ojs.faults import missing
from detent.surfaces.ojs.following import (
    Channel,
    Following,
    StreamEvent,
    channel_of,
    dropped,
    of_tenant,
    stream_event,
)
from detent.surfaces.ojs.progress import progress_shown
from detent.surfaces.ojs.reading import need_queue
from detent.surfaces.ojs.wire import told

BEAT_S: Final = 10.0
LOOK_S: Final = 0.5
"""How often somebody who follows a job is told how far it is."""
_ENDS: Final = {"completed": "completed", "discarded": "failed", "cancelled": "cancelled"}


class Streams:
    """Tells events as they happen."""

    def __init__(self, desk: Desk, events: Events) -> None:
        self._desk = desk
        self._following = Following(desk, events)
        self._places = Places(desk.settings.streams_max)

    async def job(self, call: Call) -> Reply:
        """Follow one job until it ends."""
        name = call.param("id")
        await self._desk.stored(call, name, is_head=True)
        return self._sse(call, self._channel(call, f"job:{name}"))

    async def queue(self, call: Call) -> Reply:
        """Follow the jobs of one queue."""
        name = need_queue(call.param("name"))
        call.caller.need_queue(name)
        rows = await self._desk.engine.queries.queues(call.caller.tenant)
        if name not in {row.name for row in rows}:
            raise missing("queue", name)
        return self._sse(call, self._channel(call, f"queue:{name}"))

    async def any(self, call: Call) -> Reply:
        """Follow a channel: `job:<id>`, `queue:<name>` or `all`."""
        channel = self._channel(call, call.query.get("channel", "all"))
        if channel.kind == "job":
            await self._desk.stored(call, channel.name, is_head=True)
        if channel.kind == "queue":
            call.caller.need_queue(channel.name)
        return self._sse(call, channel)

    async def progress(self, call: Call) -> Reply:
        """Follow how far one job is until it ends."""
        await self._desk.stored(call, call.param("id"), is_head=True)
        return self._places.reply(self._steps(call, call.param("id")))

    def _channel(self, call: Call, text: str) -> Channel:
        types = frozenset(filter(None, call.query.get("event_types", "").split(",")))
        return channel_of(text, types)

    def _sse(self, call: Call, channel: Channel) -> Reply:
        return self._places.reply(self._frames(call, channel))

    # --- events ---------------------------------------------------------------------------------

    async def _frames(self, call: Call, channel: Channel) -> AsyncIterator[bytes]:
        tenant, after = call.caller.tenant, 0
        listener = await self._desk.engine.tail.listen(of_tenant(tenant))
        try:
            # Asked before the reader knows that we listen: what ends afterwards is told as it goes.
            is_over = channel.kind == "job" and await self._is_over(call, channel.name)
            yield RETRY
            seen = call.header("last-event-id")
            if seen:
                async for missed in self._following.missed(seen, call.caller):
                    after = missed.pos
                    for piece in _framed(channel, missed.events):
                        yield piece
                    if any(_ends(one, channel) for one in missed.events):
                        return
                    if missed.gap is not None:
                        yield frame("system.gap", {"channel": channel.text, **missed.gap})
            end = await self._end(call, channel.name) if is_over else None
            if end is not None:
                yield end
                return
            async for piece in self._live(call, channel, listener, after):
                yield piece
        finally:
            self._desk.engine.tail.leave(listener)

    async def _live(
        self, call: Call, channel: Channel, listener: Listener, after: int
    ) -> AsyncIterator[bytes]:
        """What comes; of what the listener was told meanwhile, the missed are not told again."""
        quiet_since, note = time.monotonic(), None
        is_noted = channel.kind == "job" and channel.takes_type("job.progress")
        while True:
            page = await self._next(listener, LOOK_S if is_noted else BEAT_S)
            if self._desk.service.stopping.is_set():
                yield frame("server.shutdown", {"reason": "the server stops", "grace_period_ms": 0})
                return
            pieces = _dropped_framed(channel, listener)
            if is_noted:
                before, note = note, await self._note(call, channel.name)
                pieces += _note_framed(channel.name, before, note)
            new = [fed for fed in page if fed.pos > after]
            found = await self._following.live(new, call.caller)
            pieces += _framed(channel, found)
            if not pieces and time.monotonic() - quiet_since >= BEAT_S:
                pieces.append(BEAT)
            for piece in pieces:
                quiet_since = time.monotonic()
                yield piece
            if any(_ends(one, channel) for one in found):
                return

    async def _next(self, listener: Listener, patience_s: float = BEAT_S) -> list[Fed]:
        """What comes next; nothing when it is time for a sign of life, or to stop."""
        coming = asyncio.ensure_future(listener.take(patience_s))
        stopping = asyncio.ensure_future(self._desk.service.stopping.wait())
        await asyncio.wait([coming, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not coming.done():
            coming.cancel()
            return []
        return coming.result()

    async def _note(self, call: Call, name: str) -> Note | None:
        [stored] = await self._desk.find([(call.caller.tenant, name)], are_heads=True)
        return None if stored is None else stored.note

    async def _is_over(self, call: Call, name: str) -> bool:
        return (await self._desk.stored(call, name, is_head=True)).job.state in ENDED

    async def _end(self, call: Call, name: str) -> bytes | None:
        """The end of a job that is over; `None` if the feed will tell it in a moment."""
        head = await self._desk.stored(call, name, is_head=True)
        [history] = await self._desk.engine.store.histories([key_of(head.job)])
        for fed in reversed(history):
            change = change_of(fed, head, name) if fed.pos else None
            event = None if change is None else stream_event(change)
            if event is not None and event.is_end:
                return event.frame
        return None

    # --- progress -------------------------------------------------------------------------------

    async def _steps(self, call: Call, name: str) -> AsyncIterator[bytes]:
        """How far the job is, whenever that has changed; and how it ended."""
        yield RETRY
        shown, quiet_since = dict[str, Any](), time.monotonic()
        while True:
            stored = await self._desk.stored(call, name, is_head=True)
            before, shown = shown, progress_shown(stored, name)
            end = _end_of(stored)
            if end is None and shown != before and shown["progress"] is not None:
                yield frame("progress", shown)
                quiet_since = time.monotonic()
            elif end is None and time.monotonic() - quiet_since >= BEAT_S:
                yield BEAT
                quiet_since = time.monotonic()
            if end is not None:
                yield frame(end, shown)
                return
            if not await self._desk.service.pause(LOOK_S):
                return


def _dropped_framed(channel: Channel, listener: Listener) -> list[bytes]:
    gone = dropped(listener)
    return (
        [] if gone is None else [frame("system.events_dropped", {"channel": channel.text, **gone})]
    )


def _framed(channel: Channel, found: Sequence[StreamEvent]) -> list[bytes]:
    return [event.frame for event in found if channel.takes(event)]


def _note_framed(name: str, before: Note | None, note: Note | None) -> list[bytes]:
    """How far a job is, if it has said so since."""
    if note is None or note.percent is None or note == before:
        return []
    data = {
        "job_id": name,
        "progress": note.percent,
        "message": note.text.partition("\n")[0],
        "timestamp": told(note.at),
    }
    return [frame("job.progress", data)]


def _end_of(stored: Stored) -> str | None:
    return _ENDS.get(stored.job.state)


def _ends(event: StreamEvent, channel: Channel) -> bool:
    """Whether a reader of the channel hears nothing after it."""
    return channel.kind == "job" and event.is_end and event.subject == channel.name
