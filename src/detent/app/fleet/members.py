"""The workers of a fleet as processes: each is made known to the store, and buried at its end."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from detent.app.fleet.child import TOLD
from detent.app.fleet.orders import Orders
from detent.engine.processes import here, process_of
from detent.lifecycle.worker import Exit, derive_final_status
from detent.runtime.bridge import Bridge
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.frames import Message
from detent.runtime.process.launching import Program
from detent.runtime.process.rotation import Files
from detent.runtime.supervisor.body import Born, Handover
from detent.stores.api import Who, WorkerRow

_log = logging.getLogger("detent.fleet")
_STATES: Final = {"working": "running", "quiet": "suspended"}
"""What an instance is called that says that of itself."""


class Registry(Protocol):
    """Whoever makes workers known, and says of them that they are gone."""

    def add(self, row: WorkerRow) -> None:
        """Make a worker known."""
        ...

    async def registered(self, instance: str) -> None:
        """Return when the worker may begin."""
        ...

    def tell(self, instance: str, state: str) -> None:
        """Tell the new state of a worker."""
        ...

    async def gone(
        self, instance: str, cause: str, exit_code: int | None, *, crowded: bool
    ) -> bool:
        """It has ended, and others may have brought it down; whether that could be told."""
        ...

    @property
    def untold(self) -> Sequence[str]:
        """Who ended because it could not be renewed, while that could not be told yet."""
        ...

    async def buried(self) -> None:
        """Return when there is no such one."""
        ...


class Member(ProcessBody):
    """One worker process. What it last said of itself is in `status`."""

    def __init__(self, members: Members, program: Program, files: Files) -> None:
        super().__init__(program, files=files, on_message=self._hear)
        self.status: Message = {}
        self.instance = ""
        self.serves: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        """Which queues and types the program has that it has read."""
        self.is_crowded = False
        """Whether others run inside it beside jobs that run apart from it."""
        self._members = members

    async def spawn(self, handover: Handover) -> Born:
        """Start it, have the store know it, and only then let it claim."""
        self.instance = handover.instance
        born = await super().spawn(handover)
        self._members.begin(self, handover, born)
        return born

    def _hear(self, message: Message) -> None:
        if message["kind"] == "status":
            before, self.status = self.status.get("state", "working"), message
            if message["state"] != before:
                self._members.stands(self.instance, str(message["state"]))
            if message.get("worn"):
                self._members.worn(self.instance)
        elif message["kind"] == "serves" and not self.serves.done():
            self.serves.set_result(message)
        elif message["kind"] == "company":
            self.is_crowded = message.get("crowded") is True
        elif message["kind"] == "told":
            self._members.told(self.instance, str(message.get("directive")))
        elif message["kind"] == "proven":
            self._members.proved(self.instance, float(message["until"]))


class Members:
    """Makes the workers of one fleet, and speaks for them to the store.

    Everything that asks the store crosses the bridge; everything about processes stays here.
    """

    def __init__(self, orders: Orders, supervisor: str) -> None:
        self._orders = orders
        self._supervisor = supervisor
        self._alive: dict[str, Member] = {}
        self._following: set[asyncio.Task[None]] = set()
        self.worn: Callable[[str], None] = lambda _: None
        """Told, again and again, who says of itself that another should take its place."""
        self.told: Callable[[str, str], None] = lambda _, __: None
        """Told who was told what by whoever keeps its jobs."""
        self.proved: Callable[[str, float], None] = lambda _, __: None
        """Told until when whoever keeps its jobs trusts one that speaks to them itself."""
        self._beating: Registry | None = None
        self._bridge: Bridge | None = None

    def join(self, beating: Registry, bridge: Bridge) -> None:
        """From now on the store can be spoken to."""
        self._beating, self._bridge = beating, bridge

    def make(self, logs: Path, slot: str, environment: Mapping[str, str]) -> Callable[[], Member]:
        """What builds a fresh body for every instance of that slot."""
        told = msgspec.json.encode(self._orders.told).decode()
        program = Program(
            command=(sys.executable, "-m", "detent.app.fleet.child"),
            environment={**environment, TOLD: told},
            cwd=self._orders.home,
            min_uptime_s=None,
        )
        files = Files(logs, slot)
        return lambda: Member(self, program, files)

    def begin(self, member: Member, handover: Handover, born: Born) -> None:
        """It exists: from now on the store hears of it."""
        self._go(self._follow(member, handover, born))

    def stands(self, instance: str, state: str) -> None:
        """It says that it is quiet, or at work again: whoever waits for it should know."""
        self._go(self._reach(self._stands(instance, _STATES.get(state, state))))

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def buried(self) -> None:
        """Return when the store has heard of every end there was."""
        if self._following:
            # Whoever does not wait any longer calls nothing off: it is told on.
            await asyncio.wait(self._following)

    @property
    def has_untold(self) -> bool:
        """Whether somebody ended because nobody could renew it, and nobody has heard that."""
        return self._beating is not None and bool(self._beating.untold)

    async def told_late(self, within_s: float) -> bool:
        """Go on telling who ended because nobody could renew it; whether that was heard at last."""
        names = ", ".join(self._beats().untold)
        _log.warning("nobody has heard yet that %s ended for an outage; it is told on", names)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(within_s, 0)):
                await self._reach(self._beats().buried())
        if untold := self._beats().untold:
            _log.error("nobody has heard why %s ended: others charge its jobs", ", ".join(untold))
        return not untold

    async def _follow(self, member: Member, handover: Handover, born: Born) -> None:
        """Keep it known from the moment it has read its program to its last."""
        instance = handover.instance
        self._alive[instance] = member
        knowing = asyncio.ensure_future(self._make_known(member, handover, born))
        ending = asyncio.ensure_future(member.ended())
        try:
            await asyncio.wait([knowing, ending], return_when=asyncio.FIRST_COMPLETED)
            if knowing.done():
                knowing.result()
                member.tell({"kind": "known"})
            seen = await ending
            knowing.cancel()
            await self._reach(self._bury(member, seen))
        except Exception:
            _log.exception("worker %s cannot be kept known", instance)
        finally:
            self._alive.pop(instance, None)

    def statuses(self) -> dict[str, Message]:
        """What each worker last said of itself, by its instance."""
        return {instance: member.status for instance, member in self._alive.items()}

    # --- what the beats tell us; called in the loop of the processes ------------------------------

    def lapse(self, instances: Sequence[str]) -> None:
        """Their leases cannot be renewed: whatever they run must stop now."""
        for instance in instances:
            if (member := self._alive.get(instance)) is not None:
                _log.warning("worker %s could not be renewed; its jobs are stopped", instance)
                member.tell({"kind": "lapse"})

    def proven(self, instances: Sequence[str], until: float) -> None:
        """They are renewed: each is told until when, for the case that we stand still."""
        for instance in instances:
            if (member := self._alive.get(instance)) is not None:
                member.tell({"kind": "proven", "until": until})

    async def _make_known(self, member: Member, handover: Handover, born: Born) -> None:
        who = self._who(handover, born, await member.serves)
        row = WorkerRow(handover.instance, 0, who=who, state="running")
        await self._reach(self._add(row))

    # --- in the loop of the store -----------------------------------------------------------------

    async def _stands(self, instance: str, state: str) -> None:
        self._beats().tell(instance, state)

    async def _add(self, row: WorkerRow) -> None:
        beating = self._beats()
        beating.add(row)
        await beating.registered(row.id)

    async def _bury(self, member: Member, seen: Exit) -> None:
        _, cause = derive_final_status(seen, stop_requested=False, killed=seen.is_forced)
        crowded = member.is_crowded
        await self._beats().gone(member.instance, cause, seen.exit_code, crowded=crowded)

    def _beats(self) -> Registry:
        if self._beating is None:
            raise RuntimeError("the fleet has not begun")
        return self._beating

    async def _reach(self, work: Any) -> None:
        if self._bridge is None:
            raise RuntimeError("the fleet has not begun")
        await self._bridge.reach(work)

    def _who(self, handover: Handover, born: Born, serves: Message) -> Who:
        settings = self._orders.told.settings
        return Who(
            supervisor=self._supervisor,
            process=process_of(born.pid, born.process_at),
            keeper=here(),
            started_at=0,
            slot=handover.slot,
            slots=settings.slots,
            queues=tuple(serves["queues"]),
            types=tuple(serves["types"]),
            tenants=settings.tenants,
        )
