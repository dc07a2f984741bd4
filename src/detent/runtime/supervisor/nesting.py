"""A supervisor as a worker of another one, so that trees nest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from detent.errors import NotSuspendable
from detent.lifecycle.worker import Exit
from detent.runtime.supervisor.body import Born, Handover, Usage
from detent.runtime.supervisor.snapshot import Snapshot
from detent.runtime.supervisor.supervisor import Supervisor

_SHARE: Final = 0.9
"""What children get of the grace; the rest is for forcing them, each on record."""


class SupervisorBody:
    """`make` gets the path of its slot and builds a supervisor there, in the same tree."""

    kind = "supervisor"
    suspendable = True

    def __init__(self, make: Callable[[str], Supervisor]) -> None:
        self._make = make
        self.inner: Supervisor | None = None

    async def spawn(self, handover: Handover) -> Born | None:
        """Start it; it is there when all its children are."""
        self.inner = self._make(handover.slot)
        await self.inner.start()
        return None

    async def ready(self) -> None:
        """Return at once: it was ready when `spawn` returned."""

    async def ended(self) -> Exit:
        """Once all its children have ended."""
        return await self._inside.wait()

    async def ask(self, grace_s: float) -> None:
        """Stop all of them; those that will not are forced before the grace of all is over."""
        self._soon(grace_s * _SHARE)

    async def hasten(self, grace_s: float) -> None:
        """Within less."""
        self._soon(grace_s * _SHARE)

    async def dump(self) -> str:
        """The stacks of all children."""
        lives = tuple(self._inside.lives)
        texts = await asyncio.gather(*(live.body.dump() for live in lives))
        told = zip(lives, texts, strict=True)
        return "\n".join(f"--- {live.record.slot}\n{text}" for live, text in told if text)

    async def force(self) -> None:
        """Kill every child, each through its own journal entries."""
        if self.inner is not None:
            await self.inner.stop(0)

    async def suspend(self) -> None:
        """All children that can; one that fails to makes the whole fail."""
        done = await self._inside.suspend_all()
        for error in done.errors.values():
            raise error
        if done.suspended == "none" and self._inside.lives:
            raise NotSuspendable(f"Nothing below {self._inside.path} can go quiet")

    async def resume(self) -> None:
        """Resume all children."""
        await self._inside.resume_all()

    async def probe(self) -> bool:
        """It answers, so it is well; its children have probes of their own."""
        return self._inside.is_open

    def usage(self) -> Usage | None:
        """What all children use together."""
        if self.inner is None:
            return None
        known = [used for live in self.inner.lives if (used := live.body.usage()) is not None]
        return Usage(
            sum(used.rss_bytes for used in known),
            sum(used.cpu_s for used in known),
            sum(used.done for used in known),
        )

    def tail(self, lines: int) -> list[str]:
        """The last lines of its children, one child after the other."""
        if self.inner is None:
            return []
        told = [line for live in self.inner.lives for line in live.body.tail(lines)]
        return told[-lines:]

    def snapshot(self) -> Snapshot | None:
        """What is below; nothing, as long as it is held back."""
        return None if self.inner is None else self.inner.snapshot()

    def _soon(self, grace_s: float) -> None:
        if self.inner is not None:
            self._stopping = asyncio.ensure_future(self.inner.stop(grace_s))

    @property
    def _inside(self) -> Supervisor:
        assert self.inner is not None  # noqa: S101 - the protocol: spawned first
        return self.inner
