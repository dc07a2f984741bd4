"""Events over WebSockets; whoever listens can change what they follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from detent.engine.access import Principal, Scope
from detent.engine.tail import Listener
from detent.errors import DetentError, StoreError
from detent.stores.api import Fed
from detent.surfaces.http.problems import Problem, problem_of
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.event_words import Told
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.following import Channel, Following, channel_of, dropped, of_tenant

_log = logging.getLogger(__name__)
_CHANNELS_MAX = 1_000
_GOING_AWAY = 1001
_TRY_AGAIN = 1013
Next = Callable[[Listener], Awaitable[list[Fed]]]


class _Asked(msgspec.Struct, frozen=True):
    action: str = ""
    channel: str = ""
    event_types: list[str] = []
    last_event_id: str | None = None


async def talk(
    desk: Desk, following: Following, socket: WebSocket, who: Principal, next_: Next
) -> None:
    """Whoever is connected says what they follow, and hears of it."""
    if not who.has(Scope.READ):
        raise Problem(403, "forbidden", "this needs the scope read")
    tenant = socket.headers.get("x-ojs-tenant", who.tenant)
    if not who.may_enter(tenant):
        raise Problem(403, "forbidden", "this key is for other tenants")
    tenant = f"{desk.room}/{tenant}" if desk.room else tenant
    await socket.accept("ojs.v1" if "ojs.v1" in socket.scope.get("subprotocols", ()) else None)
    told = _Talk(desk, following, socket, who, tenant)
    listener = await desk.engine.tail.listen(of_tenant(tenant))
    hearing, code = asyncio.ensure_future(told.hear()), _GOING_AWAY
    try:
        while not hearing.done() and not desk.service.stopping.is_set():
            page = await next_(listener)
            await told.warn(dropped(listener))
            await told.tell(await following.told(page, tenant, who))
    except (WebSocketDisconnect, RuntimeError):
        return
    except StoreError as error:
        _log.warning("somebody who follows events is sent away: %s", error.message)
        code = _TRY_AGAIN
    finally:
        desk.engine.tail.leave(listener)
        hearing.cancel()
        with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
            await hearing
    # Whoever has gone without a word needs none.
    with suppress(WebSocketDisconnect, RuntimeError):
        await socket.close(code)


class _Talk:
    """One connection: what it follows, how far it was told, and what is said on it."""

    def __init__(
        self, desk: Desk, following: Following, socket: WebSocket, who: Principal, tenant: str
    ) -> None:
        self._desk = desk
        self._following = following
        self._socket = socket
        self._who = who
        self._tenant = tenant
        self._channels: dict[str, tuple[Channel, int]] = {}

    async def hear(self) -> None:
        """What the other side asks for."""
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            try:
                # Either of them may be there, and be nothing.
                sent = message.get("text") or message.get("bytes") or b""
                await self._obey(msgspec.json.decode(sent, type=_Asked))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                await self._say({"type": "error", "code": "invalid_request", "message": "no JSON"})
            except (Problem, DetentError) as error:
                problem = problem_of(error, "over a WebSocket")
                told_of = {"type": "error", "code": problem.code, "message": problem.message}
                await self._say(told_of)

    async def _obey(self, asked: _Asked) -> None:
        channel = channel_of(asked.channel, frozenset(asked.event_types))
        if asked.action == "unsubscribe":
            self._channels.pop(asked.channel, None)
            await self._say({"type": "unsubscribed", "channel": asked.channel})
            return
        if asked.action not in ("subscribe", "resume"):
            raise invalid("action must be subscribe, unsubscribe or resume", field="action")
        await self._need(channel)
        self._channels[asked.channel] = (channel, 0)
        types = sorted(channel.types)
        await self._say({"type": "subscribed", "channel": asked.channel, "event_types": types})
        if asked.last_event_id is not None:
            await self._catch_up(channel, asked)

    async def _need(self, channel: Channel) -> None:
        """Refuse what is not there, not theirs, or too much."""
        if len(self._channels) >= _CHANNELS_MAX:
            raise invalid(f"one connection follows at most {_CHANNELS_MAX} channels")
        if channel.kind == "queue" and not self._who.may_use(channel.name):
            raise Problem(403, "forbidden", "this key is not for that queue")
        if channel.kind == "job":
            [found] = await self._desk.find([(self._tenant, channel.name)])
            if found is None or not self._who.may_use(found.job.queue):
                raise missing("job", channel.name)

    async def _catch_up(self, channel: Channel, asked: _Asked) -> None:
        """What was missed, on this channel alone; what comes live is told from there on."""
        seen = asked.last_event_id or ""
        async for missed in self._following.missed(seen, self._tenant, self._who):
            if missed.gap is not None and not missed.pos:
                raise Problem(404, "unknown_event_id", "that is no event of this server")
            await self._tell_on(asked.channel, channel, missed.told)
            self._channels[asked.channel] = (channel, missed.pos)
            if missed.gap is not None:
                await self._say({"type": "warning", "code": "gap", "channel": asked.channel})

    async def tell(self, found: Sequence[Told]) -> None:
        """Everything that belongs to what is followed, and was not told already."""
        for text, (channel, after) in list(self._channels.items()):
            await self._tell_on(text, channel, [one for one in found if one.pos > after])

    async def warn(self, gone: dict[str, Any] | None) -> None:
        """Say that somebody who reads slowly has missed something."""
        if gone is not None:
            await self._say({"type": "warning", "code": "events_dropped", **gone})

    async def _tell_on(self, text: str, channel: Channel, found: Sequence[Told]) -> None:
        for one in found:
            if channel.takes(one):
                told_of = {"type": "event", "channel": text, "event": one.type}
                more = {"data": one.body["data"], "id": one.id, "timestamp": one.body["time"]}
                await self._say({**told_of, **more})

    async def _say(self, value: dict[str, Any]) -> None:
        await self._socket.send_text(msgspec.json.encode(value).decode())
