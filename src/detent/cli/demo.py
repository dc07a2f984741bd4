"""`detent demo`: real jobs, a real supervisor, a throw-away store, and a crash on purpose."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from detent.app.fleet.fleet import Fleet
from detent.app.fleet.orders import Orders, Told, Web
from detent.app.handle import Handle
from detent.cli.demo_jobs import app, flaky, greet, report, watch
from detent.cli.fleetview import FleetView
from detent.cli.output import errors_end, stdout_is_terminal
from detent.cli.running import started
from detent.engine.telling import told_at
from detent.engine.verify import Seen, Verification
from detent.extras import has_extra
from detent.runtime.supervisor.signals import Signals
from detent.runtime.worker.settings import Settings
from detent.stores.api import Stored

_PAGES: Final = 12
_SAVED: Final = 3
"""So many pages are there when its worker is killed: the next one is seen to go on from them."""
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.05
Say = Callable[[str], None]


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="End when the story is told, and do not wait for Ctrl-C.")
    ] = False,
) -> None:
    """Show jobs that succeed, retry, are cancelled, and survive the death of their worker."""
    folder = Path(tempfile.mkdtemp(prefix="detent-demo-"))
    url = f"sqlite:///{folder / 'demo.db'}"
    logging.basicConfig(level=logging.ERROR)
    app.move_to(url)
    orders = Orders(
        told=Told(reference="detent.cli.demo_jobs:app", url=url, settings=Settings(slots=5)),
        workers=2,
        state_dir=folder / "state",
        grace_s=5.0,
        web=Web(port=_free_port()) if has_extra("server") else None,
    )
    try:
        with errors_end(lambda _: 1):
            code = asyncio.run(_run(orders, once=once))
            app.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise typer.Exit(code)


async def _run(orders: Orders, *, once: bool) -> int:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"The store is {orders.told.url}; it is gone when this ends.")
    fleet = Fleet(app, orders)
    with Signals(force=fleet.force) as signals:
        async with AsyncExitStack() as stack:
            if not await started(fleet, stack, signals):
                return 0
            if orders.web is not None:
                console.print(f"It is served at {orders.web.url}/api/jobs meanwhile.")
            else:
                console.print("pip install 'detent[server]' brings the HTTP server.", markup=False)
            shown = FleetView(fleet, console) if stdout_is_terminal() else nullcontext()
            with shown:
                telling = asyncio.create_task(_Story(fleet, console.print).tell())
                ending = asyncio.create_task(signals.cancelled.wait())
                await asyncio.wait([telling, ending], return_when=asyncio.FIRST_COMPLETED)
                if telling.done():
                    telling.result()
                    if not once and stdout_is_terminal():
                        console.print("Ctrl-C ends it.")
                        await ending
                telling.cancel()
                ending.cancel()
                await signals.shut_down(fleet.stop())
    console.print("All workers have stopped.")
    return int(signals.is_forced)


def _free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((Web().host, 0))
        return int(probe.getsockname()[1])


class _Story:
    """What happens in the demo, told while it happens."""

    def __init__(self, fleet: Fleet, say: Say) -> None:
        self._fleet = fleet
        self._say = say

    async def tell(self) -> None:
        """From the first job to the proof that nothing was lost."""
        hello = await greet.aenqueue("world")
        mail = await flaky.aenqueue()
        endless = await watch.aenqueue()
        pages = await report.aenqueue(_PAGES)
        self._say("Four jobs are enqueued: greet, flaky, watch and report.")
        self._say(f"greet returned {await hello.aresult(_PATIENCE_S)!r}.")
        await self._kill_worker_of(pages)
        await endless.acancel("the demo has seen enough")
        self._say(f"flaky returned {await mail.aresult(_PATIENCE_S)!r}.")
        await self._until(endless, lambda found: found.job.state == "cancelled")
        self._say("watch was asked to stop, and did: it is cancelled.")
        self._say(f"report wrote {await pages.aresult(_PATIENCE_S)} pages, across the crash.")
        await self._history(pages)
        await self._prove()

    async def _kill_worker_of(self, job: Handle[Any]) -> None:
        """As a bad deploy or the kernel would: without a word."""
        holder = await self._until(job, lambda found: int(found.checkpoint or 0) >= _SAVED)
        slot = next(
            (one for one in self._fleet.snapshot().children if one.instance == holder), None
        )
        if slot is None or slot.pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(slot.pid, signal.SIGKILL)
        self._say(f"kill -9 {slot.pid}: that was {slot.name}, with page {_SAVED} of report saved.")

    async def _until(self, job: Handle[Any], is_so: Callable[[Stored], bool]) -> str | None:
        """Wait for that to be so about a job; who holds it then."""
        engine = await app.bridge.reach(app.engine())
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                [found] = await app.bridge.reach(_got(engine.store, job.id))
                if found is not None and is_so(found):
                    holder: str | None = found.job.holder
                    return holder
                await asyncio.sleep(_LOOK_S)

    async def _history(self, job: Handle[Any]) -> None:
        self._say("The history of report:")
        for event in await job.ahistory():
            to = f" -> {event.target}" if event.target else ""
            why = f": {event.reason}" if event.reason else ""
            self._say(f"  {told_at(event.at)}  {event.name:<12}{to:<14} by {event.actor}{why}")

    async def _prove(self) -> None:
        engine = await app.bridge.reach(app.engine())
        wrong, seen = await app.bridge.reach(_checked(Verification(engine.store)))
        verdict = wrong or "nothing is wrong"
        self._say(f"detent verify: {seen.records} jobs, {seen.events} events: {verdict}.")


async def _checked(verification: Verification) -> tuple[str, Seen]:
    found = [finding.why async for finding in verification.findings()]
    return ", ".join(found), verification.seen


async def _got(store: Any, job_id: str) -> Any:
    return await store.get([("", job_id)])
