"""A fleet: one supervised tree of worker processes, with upkeep and everything that speaks for it.

The supervisor runs no handler. It keeps its workers alive in the store with one beat for all, so a
handler that holds the interpreter of its own process silences nobody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from detent.app.detent import Detent
from detent.app.fleet.awaiting import reached
from detent.app.fleet.commands import Commands
from detent.app.fleet.guarding import guard, mind
from detent.app.fleet.members import Members
from detent.app.fleet.orders import Orders
from detent.app.fleet.serving import server_of
from detent.app.fleet.shipping import Shipping
from detent.engine.doctor.starting import doubts
from detent.engine.engine import Engine
from detent.engine.silence import FLEET
from detent.errors import DetentError, JournalLocked
from detent.extras import needs_extra
from detent.lifecycle.worker import Cause
from detent.runtime.beating import Beating, Hearing
from detent.runtime.remains import SessionRemains
from detent.runtime.supervisor.clock import done_within
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.function import FunctionBody, WorkerContext
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.recycling import swap
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.snapshot import Snapshot
from detent.runtime.supervisor.spec import KEEPER, Spec
from detent.runtime.supervisor.stopping import keep_dump
from detent.runtime.supervisor.supervisor import Supervisor
from detent.runtime.supervisor.tree import Tree

if TYPE_CHECKING:
    from detent.app.fleet.numbers import Numbers

_log = logging.getLogger("detent.fleet")
_LAST_WORDS_S: Final = 3.0
_LAPSE_S: Final = 2.0
"""How long a worker may take to stop its handlers by itself when its lease cannot be renewed."""
_SPARE_S: Final = 5.0
"""Beyond the grace of a worker, for its dump, its end and what is written of it."""
NAMES_MAX: Final = 100


class Fleet:
    """Entered, its workers are up; left, they are down and everything is told."""

    def __init__(self, app: Detent, orders: Orders) -> None:
        self.app = app
        self.orders = orders
        self.id = str(uuid4())
        self.members = Members(orders, self.id)
        self.numbers = None if orders.metrics is None else _new_numbers()
        """What the supervisor counts, if somebody wants to know."""
        self._revision = 0
        self._is_made = False
        self._changing = asyncio.Lock()
        """One change of all workers at a time."""
        self._relieving: set[str] = set()
        self._beside: list[asyncio.Task[Any]] = []
        self._stop_by: float | None = None
        """When the time is over that stopping may take."""

    async def __aenter__(self) -> Self:
        async with self._changing:
            await self._open()
            self.journal = _journal(self.orders)
            try:
                self.supervisor = self._supervisor()
                self._is_made = True
                await self._begin()
                await self.supervisor.start()
            except BaseException:
                await self._end()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self._end()

    async def stop(self, budget_s: float | None = None) -> None:
        """Stop all workers, each within its grace, or all within the budget."""
        usual_s = self.orders.grace_s + _SPARE_S
        by = time.monotonic() + (usual_s if budget_s is None else budget_s)
        self._stop_by = by if self._stop_by is None else min(by, self._stop_by)
        await self.supervisor.stop(budget_s)

    async def force(self) -> None:
        """Kill all workers now."""
        if self._is_made:
            await self.supervisor.stop(0)

    @property
    def was_forced(self) -> bool:
        """Whether stopping took longer than it may, so that all workers were killed."""
        return self._is_made and self.supervisor.is_forced

    async def wait(self) -> None:
        """Come back when something has ended that a fleet cannot be without, and say why."""
        done, _ = await asyncio.wait(self._beside, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def reload(self, *, patient: bool = True) -> None:
        """Replace every worker by one that has read the program anew, one by one.

        One that cannot be started leaves the old one as it is, and the error says why. The server
        goes last: two of them cannot listen at one address, so by then the program can be read. If
        not `patient`, an old worker that still runs jobs keeps nobody else from being replaced.
        """
        async with self._changing:
            self._revision += 1
            for spec in (*self._workers(), *self._servers()):
                await self.supervisor.replace(spec, patient=patient)

    def snapshot(self) -> Snapshot:
        """The whole tree at this moment."""
        return self.supervisor.snapshot(self.journal.directory.name)

    # --- how it is made -------------------------------------------------------------------------

    async def _open(self) -> None:
        """Reach whoever keeps the jobs, before anything is started."""
        app = self.app
        self._engine: Engine = await reached(lambda: app.bridge.reach(app.engine()), "store")
        await self.app.bridge.reach(doubts(self._engine))

    def _supervisor(self) -> Supervisor:
        tree = Tree(self.journal, name=f"{FLEET}{self.id}", metrics=self.numbers)
        specs = [*self._keepers(), *self._servers(), *self._workers()]
        plan = Plan(shutdown_s=self.orders.grace_s + _SPARE_S)
        return Supervisor(tree, specs, plan, remains=SessionRemains())

    def _workers(self) -> list[Spec]:
        orders, logs = self.orders, self.logs
        revision = f"{orders.told} {self._revision}"
        return [
            Spec(
                name=f"worker-{number}",
                make=self.members.make(logs, f"worker-{number}", {}),
                stop_grace_s=orders.grace_s,
                backoff=orders.backoff,
                breaker=orders.breaker,
                probe=orders.probe,
                recycle=orders.recycle,
                revision=revision,
            )
            for number in range(1, orders.workers + 1)
        ]

    def _servers(self) -> list[Spec]:
        """The web surfaces in a process of their own, if they are wanted."""
        return server_of(self.orders, self.app.connection.url, self.logs, str(self._revision))

    def _keepers(self) -> list[Spec]:
        """What a fleet does beside running jobs, each in a slot of its own."""
        app, engine = self.app, self._engine
        work: dict[str, Callable[[], Any]] = {
            "commands": lambda: Commands(self, engine, app.bridge).run()
        }
        if self.orders.upkeep:
            work["upkeep"] = app.aupkeep
        return [
            Spec(
                name=name,
                make=_function(what),
                kind="function",
                role=KEEPER,
                needs_ready_signal=False,
            )
            for name, what in work.items()
        ]

    @property
    def logs(self) -> Path:
        """Where the output of workers is kept."""
        return self.journal.directory / "logs"

    # --- beside the tree --------------------------------------------------------------------------

    async def _begin(self) -> None:
        loop, bridge, engine = asyncio.get_running_loop(), self.app.bridge, self._engine

        def hear(what: Callable[..., None]) -> Callable[..., None]:
            return lambda *news: _across(loop, what, news)

        lapse, proven = hear(self._lapse), hear(self.members.proven)
        hearing = Hearing(lapsed=lapse, lost=lapse, proven=proven)
        beating = await bridge.reach(_made(lambda: Beating(engine.store, hearing)))
        self.members.join(beating, bridge)
        self.members.worn = self._relieve
        self.shipping = Shipping(self.supervisor, engine, bridge)
        self._beside = [
            asyncio.create_task(bridge.reach(beating.run()), name="beating"),
            asyncio.create_task(self.shipping.run(), name="shipping"),
            asyncio.create_task(guard(self.app.connection.url), name="guard"),
            asyncio.create_task(mind(self.journal.directory), name="mind"),
        ]

    def _lapse(self, instances: Sequence[str]) -> None:
        """Their leases cannot be renewed: whatever they run must stop now."""
        self.members.lapse(instances)
        for live in tuple(self.supervisor.lives):
            if live.id in instances:
                self.supervisor.tasks.run(self._see_off(live), f"seeing off {live.id}")

    def _relieve(self, instance: str) -> None:
        """Too much of it is stuck: another takes its place, as soon as that one is ready."""
        for live, slot in tuple(self.supervisor.lives.items()):
            is_free = self.supervisor.may_start(slot) and not slot.busy.locked()
            is_it = live.id == instance and slot.live is live
            if is_it and is_free and instance not in self._relieving:
                self._relieving.add(instance)
                self.supervisor.tasks.run(self._relieved(slot, live), f"relieving {instance}")

    async def _relieved(self, slot: Slot, live: Live) -> None:
        """What it is stuck in is kept, for whoever looks for the reason."""
        try:
            live.note("recycled", "stuck")
            await keep_dump(live)
            await swap(self.supervisor, slot, slot.spec, Cause.RECYCLED)
        finally:
            self._relieving.discard(live.id)

    async def _see_off(self, live: Live) -> None:
        """Whoever cannot hear that, because a handler holds its interpreter, is killed for it."""
        if not await done_within(self.supervisor.tree.clock, _LAPSE_S, live.done):
            _log.warning("worker %s did not stop its jobs, and is killed", live.id)
            live.note("lapsed")
            await self.supervisor.stop_live(live, 0)

    async def _end(self) -> None:
        if self._beside:
            await self._part()
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        self.journal.close()

    async def _part(self) -> None:
        """Last words; that a store was away is worth the rest of the time there is to tell it."""
        await self._say_last()
        if self._stop_by is not None and self.members.has_untold:
            left_s = self._stop_by - time.monotonic() - _LAST_WORDS_S
            if await self.members.told_late(left_s):
                await self._say_last()

    async def _say_last(self) -> None:
        try:
            await asyncio.wait_for(self._last_words(), _LAST_WORDS_S)
        except (DetentError, TimeoutError) as error:
            why = str(error) or "the store does not answer"
            _log.warning("the last of the journal is shipped next time: %s", why)

    async def _last_words(self) -> None:
        """Who ended is told first, and nobody waits for the next fleet to free what they held."""
        await self.members.buried()
        if self.orders.upkeep:
            await self.app.bridge.reach(_kept_up(self.app))
        await self.shipping.ship()


def _journal(orders: Orders) -> Journal:
    """The first of its name that nobody uses: several fleets may share a folder."""
    with suppress(OSError):
        # If it cannot be made, the journal in it says so.
        orders.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(1, NAMES_MAX + 1):
        name = orders.name if number == 1 else f"{orders.name}-{number}"
        try:
            return Journal(orders.folder / name)
        except JournalLocked:
            if number == NAMES_MAX:
                raise
    raise AssertionError("there is at least one name")


def _function(what: Callable[[], Any]) -> Callable[[], FunctionBody]:
    async def run(_: WorkerContext) -> None:
        await what()

    return lambda: FunctionBody(run)


def _across(loop: asyncio.AbstractEventLoop, what: Callable[..., None], news: Any) -> None:
    loop.call_soon_threadsafe(what, *news)


async def _kept_up(app: Detent) -> None:
    await (await app.engine()).upkeep.turn()


async def _made(make: Callable[[], Beating]) -> Beating:
    return make()


def _new_numbers() -> Numbers:
    with needs_extra("server", "The numbers of a supervisor"):
        from detent.app.fleet.numbers import Numbers  # noqa: PLC0415 - loads Prometheus
    return Numbers()
