"""Events as they happen: over SSE for those who follow, over WebSockets for those who choose.

A channel is a job, a queue, or all. Whoever comes back says which event they saw last, and hears
first what they have missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from detent.engine.access import Principal, Scope
from detent.engine.tail import Listener
from detent.lifecycle.job.table import ENDED
from detent.stores.api import Fed, Stored
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.sse import BEAT, RETRY, Places, frame
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.events import Events
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.reading import need_queue
from detent.surfaces.ojs.telling import Told, change_of, position_of
from detent.surfaces.ojs.wire import told

__all__ = ["Streams"]

BEAT_S: Final = 10.0
_MISSED_MAX: Final = 10_000
"""How many events of the feed are looked through for what somebody has missed."""
_FINAL = frozenset(state.value for state in ENDED)


class _Channel(msgspec.Struct, frozen=True):
    """What somebody follows: `job`, `queue` or `all`, and of which name."""

    kind: str
    name: str = ""
    types: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """How it is written."""
        return self.kind if self.kind == "all" else f"{self.kind}:{self.name}"

    def takes(self, one: Told) -> bool:
        """Whether the event belongs to it."""
        if self.types and one.type not in self.types:
            return False
        if self.kind == "job":
            return bool(one.body["subject"] == self.name)
        return self.kind == "all" or one.queue == self.name


class _Asked(msgspec.Struct, frozen=True):
    action: str = ""
    channel: str = ""
    event_types: list[str] = []
    last_event_id: str | None = None


class Streams:
    """Tells events as they happen."""

    def __init__(self, desk: Desk, events: Events) -> None:
        self._desk = desk
        self._events = events
        self._places = Places(desk.settings.streams_max)

    # --- SSE ------------------------------------------------------------------------------------

    async def job(self, call: Call) -> Reply:
        """Follow one job until it ends."""
        name = call.param("id")
        await self._desk.stored(call, name)
        return self._sse(call, self._channel(call, f"job:{name}"))

    async def queue(self, call: Call) -> Reply:
        """Follow the jobs of one queue."""
        name = need_queue(call.param("name"))
        self._desk.need_queue(call, name)
        rows = await self._desk.engine.queries.queues(self._desk.tenant(call))
        if name not in {row.name for row in rows}:
            raise missing("queue", name)
        return self._sse(call, self._channel(call, f"queue:{name}"))

    async def any(self, call: Call) -> Reply:
        """Follow a channel: `job:<id>`, `queue:<name>` or `all`."""
        channel = self._channel(call, call.query.get("channel", "all"))
        if channel.kind == "job":
            await self._desk.stored(call, channel.name)
        if channel.kind == "queue":
            self._desk.need_queue(call, channel.name)
        return self._sse(call, channel)

    def _channel(self, call: Call, text: str) -> _Channel:
        types = frozenset(filter(None, call.query.get("event_types", "").split(",")))
        return channel_of(text, types)

    def _sse(self, call: Call, channel: _Channel) -> Reply:
        return self._places.reply(self._frames(call, channel))

    async def _frames(self, call: Call, channel: _Channel) -> AsyncIterator[bytes]:
        listener = await self._desk.engine.tail.listen(_of_tenant(self._desk.tenant(call)))
        try:
            # Asked before the reader knows that we listen: what ends afterwards is told as it goes.
            is_over = channel.kind == "job" and await self._is_over(call, channel.name)
            yield RETRY
            async for frame in self._missed(call, channel):
                yield frame
            if is_over:
                yield await self._last(call, channel.name)
                return
            async for frame in self._live(call, channel, listener):
                yield frame
        finally:
            self._desk.engine.tail.leave(listener)

    async def _missed(self, call: Call, channel: _Channel) -> AsyncIterator[bytes]:
        """What has happened since the event that the reader saw last."""
        seen = call.header("last-event-id")
        after = None if seen is None else position_of(seen)
        if after is None:
            return
        looked = 0
        async for page in self._desk.engine.tail.since(after):
            for one in await self.told(page, self._desk.tenant(call), call.who):
                if channel.takes(one):
                    yield frame(one.type, one.body["data"], one.id)
            looked += len(page)
            if looked >= _MISSED_MAX:
                yield frame("system.gap", {"channel": channel.text, "gap_start": seen})
                return

    async def _live(
        self, call: Call, channel: _Channel, listener: Listener
    ) -> AsyncIterator[bytes]:
        while True:
            page = await self._next(listener)
            if self._desk.service.stopping.is_set():
                yield frame("server.shutdown", {"reason": "the server stops", "grace_period_ms": 0})
                return
            if listener.dropped:
                yield frame("system.events_dropped", _dropped(listener, channel))
            found = await self.told(page, self._desk.tenant(call), call.who)
            mine = [one for one in found if channel.takes(one)]
            for one in mine:
                yield frame(one.type, one.body["data"], one.id)
            if channel.kind == "job" and any(_ends(one) for one in mine):
                return
            if not mine:
                yield BEAT

    async def _next(self, listener: Listener) -> list[Fed]:
        """What comes next; nothing when it is time for a sign of life, or to stop."""
        coming = asyncio.ensure_future(listener.take(BEAT_S))
        stopping = asyncio.ensure_future(self._desk.service.stopping.wait())
        await asyncio.wait([coming, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not coming.done():
            coming.cancel()
            return []
        return coming.result()

    async def _is_over(self, call: Call, name: str) -> bool:
        return (await self._desk.stored(call, name)).job.state in ENDED

    async def _last(self, call: Call, name: str) -> bytes:
        stored = await self._desk.stored(call, name)
        data = {
            "job_id": name,
            "queue": stored.job.queue,
            "type": stored.body.type,
            "from": stored.job.previous,
            "to": stored.job.state,
            "timestamp": told(stored.job.state_at),
        }
        return frame("job.state_changed", data)

    # --- what is told ---------------------------------------------------------------------------

    async def told(self, page: Sequence[Fed], tenant: str, who: Principal) -> list[Told]:
        """The events of a page, and the changes of state behind them."""
        if not page:
            return []
        found = await self._events.told(page, tenant)
        changes = await self._changes(page, tenant)
        both = sorted([*changes, *found], key=lambda one: one.pos)
        return [one for one in both if not one.queue or who.may_use(one.queue)]

    async def _changes(self, page: Sequence[Fed], tenant: str) -> list[Told]:
        mine = [one for one in page if one.event.tenant == tenant and one.event.kind == "job"]
        keys = list(dict.fromkeys((one.event.tenant, one.event.record) for one in mine))
        found = await self._desk.engine.store.get(keys) if keys else []
        stored: dict[str, Stored] = {one.job.id: one for one in found if one is not None}
        names = await self._desk.engine.aliases.shown([one.job for one in stored.values()])
        shown = dict(zip(stored, names, strict=True))
        told_of = [
            change_of(one, stored[one.event.record], shown[one.event.record])
            for one in mine
            if one.event.record in stored
        ]
        return [one for one in told_of if one is not None]

    # --- WebSockets -----------------------------------------------------------------------------

    async def socket(self, socket: WebSocket, who: Principal) -> None:
        """Whoever is connected says what they follow, and hears of it."""
        if not who.has(Scope.READ):
            raise Problem(403, "forbidden", "this needs the scope read")
        tenant = socket.headers.get("x-ojs-tenant", who.tenant)
        if not who.may_enter(tenant):
            raise Problem(403, "forbidden", "this key is for other tenants")
        tenant = f"{self._desk.room}/{tenant}" if self._desk.room else tenant
        await socket.accept("ojs.v1" if "ojs.v1" in socket.scope.get("subprotocols", ()) else None)
        talk = _Talk(self, socket, who, tenant)
        listener = await self._desk.engine.tail.listen(_of_tenant(tenant))
        hearing = asyncio.ensure_future(talk.hear(self._desk))
        try:
            while not hearing.done() and not self._desk.service.stopping.is_set():
                await talk.tell(await self.told(await self._next(listener), tenant, who))
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            self._desk.engine.tail.leave(listener)
            hearing.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await hearing
        with suppress(RuntimeError):
            await socket.close(1001)


class _Talk:
    """One connection: what it follows, and what is said on it."""

    def __init__(self, streams: Streams, socket: WebSocket, who: Principal, tenant: str) -> None:
        self._streams = streams
        self._socket = socket
        self._who = who
        self._tenant = tenant
        self._channels: dict[str, _Channel] = {}

    async def hear(self, desk: Desk) -> None:
        """What the other side asks for."""
        while True:
            text = await self._socket.receive_text()
            try:
                asked = msgspec.json.decode(text, type=_Asked)
                await self._obey(asked, desk)
            except msgspec.DecodeError:
                await self._say({"type": "error", "code": "invalid_request", "message": "no JSON"})
            except Problem as problem:
                told_of = {"type": "error", "code": problem.code, "message": problem.message}
                await self._say(told_of)

    async def _obey(self, asked: _Asked, desk: Desk) -> None:
        channel = channel_of(asked.channel, frozenset(asked.event_types))
        if asked.action == "unsubscribe":
            self._channels.pop(asked.channel, None)
            await self._say({"type": "unsubscribed", "channel": asked.channel})
            return
        if asked.action not in ("subscribe", "resume"):
            raise invalid("action must be subscribe, unsubscribe or resume", field="action")
        await self._need(channel, desk)
        self._channels[asked.channel] = channel
        types = sorted(channel.types)
        await self._say({"type": "subscribed", "channel": asked.channel, "event_types": types})
        if asked.last_event_id is not None:
            await self._catch_up(asked.last_event_id, desk)

    async def _need(self, channel: _Channel, desk: Desk) -> None:
        """Refuse what is not there, or not theirs."""
        if channel.kind == "queue" and not self._who.may_use(channel.name):
            raise Problem(403, "forbidden", "this key is not for that queue")
        if channel.kind == "job":
            [found] = await desk.find([(self._tenant, channel.name)])
            if found is None or not self._who.may_use(found.job.queue):
                raise missing("job", channel.name)

    async def _catch_up(self, seen: str, desk: Desk) -> None:
        after = position_of(seen)
        if after is None:
            raise Problem(404, "unknown_event_id", "that is no event of this server")
        async for page in desk.engine.tail.since(after):
            await self.tell(await self._streams.told(page, self._tenant, self._who))

    async def tell(self, found: Sequence[Told]) -> None:
        """Everything that belongs to what is followed."""
        for one in found:
            for text, channel in list(self._channels.items()):
                if channel.takes(one):
                    told_of = {"type": "event", "channel": text, "event": one.type}
                    more = {"data": one.body["data"], "id": one.id, "timestamp": one.body["time"]}
                    await self._say({**told_of, **more})

    async def _say(self, value: dict[str, Any]) -> None:
        await self._socket.send_text(msgspec.json.encode(value).decode())


def channel_of(text: str, types: frozenset[str] = frozenset()) -> _Channel:
    """The channel that a text names."""
    kind, _, name = text.partition(":")
    if kind == "all" or (kind in ("job", "queue") and name):
        return _Channel(kind, name, types)
    raise invalid("channel must be job:<id>, queue:<name> or all", field="channel")


def _of_tenant(tenant: str) -> Callable[[Fed], bool]:
    return lambda fed: fed.event.tenant == tenant


def _ends(one: Told) -> bool:
    return one.type == "job.state_changed" and one.body["data"].get("to") in _FINAL


def _dropped(listener: Listener, channel: _Channel) -> dict[str, Any]:
    gone, listener.dropped = listener.dropped, []
    return {
        "channel": channel.text,
        "dropped_count": len(gone),
        "timestamp": told(gone[-1].event.at),
    }
