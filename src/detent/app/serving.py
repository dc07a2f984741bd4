"""All web surfaces on one store, put together: the only module that names them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from msgspec.structs import replace

from detent import stores
from detent.app.actions import DeclaredActions, DeclaredTypes
from detent.app.connection import keyring_of
from detent.app.detent import Detent
from detent.app.fleet.awaiting import reached
from detent.engine.addresses import Rules
from detent.engine.doctor.starting import doubts
from detent.engine.engine import Engine
from detent.engine.posting import Poster
from detent.engine.secrets import Secrets
from detent.runtime.process.inside import Inside
from detent.surfaces.engines.surface import EnginesSurface
from detent.surfaces.http.app import WebApp
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.gate import LOOPBACK
from detent.surfaces.http.listening import need_place
from detent.surfaces.http.logs import log_to_stderr
from detent.surfaces.http.server import Bind, need_guard, serve
from detent.surfaces.http.service import Service
from detent.surfaces.jobnik.surface import JobnikSurface
from detent.surfaces.ojs.surface import OjsSurface
from detent.surfaces.rest.surface import RestSurface

PATIENCE_S = 5.0
"""How long a request waits for a store that is away; then its sender may decide."""


_FRONT = """\
This is Detent. Programs talk to it here; people look at jobs with detent jobs list, detent jobs
show ID and detent jobs why ID, on the machine of the store.

/api/jobs   jobs for a web front end, newest first; /api/openapi.json has every path
/ojs/v1     Open Job Spec; /ojs/v1/openapi.json has every path, /ojs/manifest what it can do
/v1         Jobnik; /docs/api describes it
/engine     Socket.IO, for engines that work is pushed to
/metrics    counters for Prometheus; /livez and /readyz are for probes
"""
"""What a browser shows under the bare address. It tells nothing that a key is needed for."""


def web_app(
    url: str,
    settings: Settings,
    app: Detent | None = None,
    waits: Callable[[bool], None] | None = None,
) -> WebApp:
    """The application; its store is opened when the server starts.

    With an app it knows what may be started, and what is secret about it. If somebody is told that
    it `waits`, it does so for a store that is away.
    """

    async def opened(stack: AsyncExitStack) -> Engine:
        store = await stack.enter_async_context(stores.open(url, patience_s=PATIENCE_S))
        secrets, poster = Secrets(keyring_of(url)), Poster(Rules.of(os.environ))
        return await stack.enter_async_context(Engine(store, secrets=secrets, poster=poster))

    async def opening(stack: AsyncExitStack) -> Engine:
        if waits is None:
            engine = await opened(stack)
        else:
            waits(True)
            engine = await reached(lambda: opened(stack), "store")
            waits(False)
        if app is not None:
            secret = {name: one.hidden.declared for name, one in app.handlers.items()}
            await engine.declared.tell(secret)
        await doubts(engine)
        service.opened(engine)
        ojs.opened()
        jobnik.opened()
        engines.opened()
        return engine

    service = Service(opening)
    ojs = OjsSurface(service, settings)
    jobnik = JobnikSurface(service, settings)
    rest = RestSurface(service, settings, None if app is None else DeclaredActions(app))
    engines = EnginesSurface(service, settings, None if app is None else DeclaredTypes(app))
    web = WebApp(service, [ojs, jobnik, rest, engines], settings, _FRONT)
    web.metrics.add(engines.registry)
    return web


def serving(
    url: str,
    settings: Settings,
    bind: Bind,
    *,
    is_guarded: bool,
    json_logs: bool = False,
    app: Detent | None = None,
) -> bool:
    """Serve until a signal comes; where others could get in, only behind keys.

    False if a second signal has cut short what was begun.
    """
    inside = Inside.join()
    need_guard(bind, has_keys=is_guarded, test_mode=settings.test_mode)
    need_place(bind.host, bind.port)
    log_to_stderr(as_json=json_logs)
    if bind.is_local:
        # A page of another site must not get here by a name that it has made up.
        settings = replace(settings, hosts=(*LOOPBACK, *settings.hosts))
    if inside is None:
        return serve(web_app(url, settings, app), bind)

    def waits(on: bool) -> None:
        inside.tell({"kind": "waits", "on": on})

    return serve(web_app(url, settings, app, waits), bind, partial(_told, inside))


def _told(inside: Inside) -> None:
    """It listens: whoever supervises us hears it from ourselves."""
    inside.hear({}, asyncio.get_running_loop())
    inside.tell({"kind": "ready"})
