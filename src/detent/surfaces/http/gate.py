"""Who gets in: the host that is asked for, the page that asks, the key, and how often.

`Gate` makes the `Caller` of every request. `KeyWatch` ends what outlives a request (streams, waits,
WebSockets) as soon as its key opens nothing any more.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import re
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from detent.engine.access import OPEN_TO_ALL, Access, Principal
from detent.surfaces.http.caller import Caller, CallerRules, caller_of, need_reach
from detent.surfaces.http.exchange import Call, Message, Receive, Settings
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.routing import Route
from detent.surfaces.http.service import Service

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""What a server that only this host can reach is called."""
_OTHER_NAME = "if that is its name, behind a proxy, start it with --allow-host"
_OTHER_PAGE = "if that page is yours, start it with --allow-origin"
_PREFIX = "/k/"
_BUCKETS_MAX = 10_000
_WELCOME_MAX = 1_000
_HOST_CHARS_MAX = 300
# A name or an address in brackets, then perhaps a port.
_HOST: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9a-zA-Z._-]+))(?::[0-9]{0,5})?")
# How often the keys of open connections are checked.
RECHECK_S: Final = 0.5


class Gate:
    """Decides about requests before anybody looks at what they want."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._hosts = settings.hosts
        self._origins = settings.origins
        self._rate = settings.rate
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._welcome: set[str] = set()

    def check_place(self, call: Call) -> None:
        """A page of another site must not reach us by a name of its own, nor through a browser."""
        if self._hosts:
            self._need_host(call.header("host") or "")
        if b"origin" not in call.headers:
            return
        if not self._is_known(call.header("origin") or "", call.header("host") or ""):
            why = "a page of another origin may not call this server"
            raise Problem(403, "forbidden", why, hint=_OTHER_PAGE)

    def _need_host(self, told: str) -> None:
        if told in self._welcome:
            return
        found = _HOST.fullmatch(told)
        host = "" if found is None else (found[1] or found[2]).lower()
        if host not in self._hosts:
            why = f"this server is not {host or 'that'}"
            raise Problem(421, "misdirected_request", why, hint=_OTHER_NAME)
        if len(self._welcome) < _WELCOME_MAX and len(told) < _HOST_CHARS_MAX:
            self._welcome.add(told)

    def _is_known(self, origin: str, host: str) -> bool:
        """One that was named, or this server's own pages, under a name that it may have."""
        return origin in self._origins or _authority(origin) == host

    def key_of(self, call: Call) -> str | None:
        """The key that a request brings: in front of its path, or in its headers."""
        return call.key or _offered(call)

    def known(self, access: Access, key: str | None) -> Principal | None:
        """Whose key that is, if the store was asked a moment ago."""
        if key is not None:
            return access.known(key)
        return OPEN_TO_ALL if access.is_known_open() else None

    async def admit(self, access: Access, key: str | None) -> Principal:
        """Whose key that is; without any key in the store everybody may call."""
        if key is None:
            if await access.is_guarded():
                raise _unknown("an API key is needed: Authorization: Bearer <key>")
            return OPEN_TO_ALL
        found = await access.principal(key)
        if found is None:
            if not await access.is_guarded():
                return OPEN_TO_ALL
            raise _unknown("this API key opens nothing: unknown, revoked or run out")
        return found

    def caller(self, principal: Principal, call: Call, route: Route, rules: CallerRules) -> Caller:
        """The caller of a route; refuses a key without its scope or bound too tightly for it."""
        if route.scope is not None and not principal.has(route.scope):
            why = f"this needs the scope {route.scope}"
            raise Problem(403, "forbidden", why, scope=route.scope.value)
        need_reach(principal, route.reach)
        return self.caller_in(principal, call, rules)

    def caller_in(self, principal: Principal, call: Call, rules: CallerRules) -> Caller:
        """The caller in the tenant that the request names, if it may name one."""
        header = rules.tenant_header
        named = None if header is None else call.header(header)
        return caller_of(principal, named, rules)

    def throttle(self, who: Principal, address: str) -> tuple[tuple[str, str], ...]:
        """So many requests a second from one caller, and as many at once; headers tell the rest."""
        if self._rate is None:
            return ()
        now, name = self._clock(), who.id or address
        tokens, at = self._buckets.get(name, (float(self._rate), now))
        tokens = min(tokens + (now - at) * self._rate, float(self._rate))
        if len(self._buckets) >= _BUCKETS_MAX:
            self._buckets.clear()
        left = tokens - 1 if tokens >= 1 else tokens
        self._buckets[name] = (left, now)
        headers = _allowance(self._rate, left)
        if tokens < 1:
            wait = max(math.ceil((1 - tokens) / self._rate), 1)
            found = Problem(429, "rate_limited", f"more than {self._rate} requests a second")
            found.retryable = True
            raise found.with_headers(("retry-after", str(wait)), *headers)
        return headers


class KeyWatch:
    """Ends long-lived connections whose key was revoked or has expired.

    One loop checks every key that holds a connection open, so that no surface has to.
    """

    def __init__(self, gate: Gate, service: Service) -> None:
        self._gate = gate
        self._service = service
        self._cuts: dict[str | None, set[Callable[[], None]]] = {}

    async def run(self) -> None:
        """Check all keys again and again until the server stops."""
        while await self._service.pause(RECHECK_S):
            for key in tuple(self._cuts):
                try:
                    await self._gate.admit(self._service.engine.access, key)
                except Problem:
                    for cut in self._cuts.pop(key, ()):
                        cut()

    def watch(self, key: str | None, cut: Callable[[], None]) -> None:
        """Call `cut` once the key opens nothing any more."""
        self._cuts.setdefault(key, set()).add(cut)

    def forget(self, key: str | None, cut: Callable[[], None]) -> None:
        """The connection is gone."""
        cuts = self._cuts.get(key, set())
        cuts.discard(cut)
        if not cuts:
            self._cuts.pop(key, None)

    async def receive(self, key: str | None, receive: Receive) -> Message:
        """The next message of a client; once its key opens nothing, that it has gone."""
        is_revoked = asyncio.Event()
        cut = is_revoked.set
        waits = asyncio.ensure_future(receive()), asyncio.ensure_future(is_revoked.wait())
        self.watch(key, cut)
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return waits[0].result() if waits[0].done() else {"type": "http.disconnect"}
        finally:
            self.forget(key, cut)
            for one in waits:
                one.cancel()


def _authority(origin: str) -> str | None:
    """The host and port of an origin; `None` if it is no URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _allowance(rate: int, left: float) -> tuple[tuple[str, str], ...]:
    """How much a caller has left, and in how many seconds it has all of it again."""
    return (
        ("x-ratelimit-limit", str(rate)),
        ("x-ratelimit-remaining", str(int(left))),
        ("x-ratelimit-reset", str(math.ceil((rate - left) / rate))),
    )


def split_key(path: str) -> tuple[str, str | None]:
    """A path, and the key in front of it (`/k/<key>/ojs/v1/jobs`) if there is one."""
    if not path.startswith(_PREFIX):
        return path, None
    key, _, rest = path[len(_PREFIX) :].partition("/")
    return f"/{rest}", key


def _offered(call: Call) -> str | None:
    """The key of a request: as bearer, or as the password or the name of basic auth."""
    if b"authorization" not in call.headers:
        return None
    kind, _, value = (call.header("authorization") or "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise _unknown("the Authorization header cannot be read") from None
    return password or name


def _unknown(why: str) -> Problem:
    return Problem(401, "unauthenticated", why).with_headers(("www-authenticate", "Bearer"))
