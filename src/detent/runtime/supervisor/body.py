"""What an instance is made of: a process, a function, a container, or another supervisor.

The supervisor decides and writes down; a body only does. It makes no policy, keeps no history, and
lives once: a slot builds a fresh one for every instance.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import msgspec

from detent.lifecycle.worker import Exit

PERMANENT: Final = 125
"""The exit code of a worker that must not be started again: another start cannot help."""

_PREFIX: Final = "LIFECYCLE_"


class Handover(msgspec.Struct, frozen=True):
    """What a new instance is told about its place and about the instance before it.

    `resume_id` belongs to the slot and is the same for all its instances, across restarts of the
    supervisor too. The `prev_*` fields are there on restarts only. `suspended`: take no work in
    until it is resumed; its slot was suspended before it was born.
    """

    instance: str
    slot: str
    resume_id: str
    attempt: int = 1
    prev_exit: int | None = None
    prev_status: str | None = None
    prev_cause: str | None = None
    suspended: bool = False

    def environment(self) -> dict[str, str]:
        """The variables to set before the spawn; afterwards they reach nobody."""
        told = {
            "INSTANCE_ID": self.instance,
            "SLOT": self.slot,
            "RESUME_ID": self.resume_id,
            "ATTEMPT": self.attempt,
            "PREV_EXIT": self.prev_exit,
            "PREV_STATUS": self.prev_status,
            "PREV_CAUSE": self.prev_cause,
            "SUSPENDED": 1 if self.suspended else None,
        }
        return {_PREFIX + name: str(value) for name, value in told.items() if value is not None}


class Born(msgspec.Struct, frozen=True):
    """Which process it is. A pid alone is recycled; with the kernel's start time it is not."""

    pid: int
    process_at: int


class Usage(msgspec.Struct, frozen=True):
    """What it uses now; `done` counts the units of work that it says it has finished."""

    rss_bytes: int = 0
    cpu_s: float = 0.0
    done: int = 0


@runtime_checkable
class Waiting(Protocol):
    """A body that may have to wait for others before it can be ready."""

    @property
    def waits(self) -> bool:
        """Whether it does now: that is not its fault."""
        ...


class Body(Protocol):
    """One attempt at running something.

    `spawn` is called at most once and first. `ask`, `hasten` and `force` may come at any moment
    after it, also when it has ended already, and must then do nothing.
    """

    @property
    def kind(self) -> str:
        """`process`, `function`, `container` or `supervisor`; for display."""
        ...

    @property
    def suspendable(self) -> bool:
        """Whether it can go quiet and come back."""
        ...

    async def spawn(self, handover: Handover) -> Born | None:
        """Return once it exists, or raise; `None` where there is no process of its own."""
        ...

    async def ready(self) -> None:
        """Return when readiness is proven; never return if it ends first."""
        ...

    async def ended(self) -> Exit:
        """How it ended, once nothing of it is left; for any number of waiters, also afterwards."""
        ...

    async def ask(self, grace_s: float) -> None:
        """Please stop, within that time. A frozen one is woken for it."""
        ...

    async def hasten(self, grace_s: float) -> None:
        """There is less time left than it was told."""
        ...

    async def dump(self) -> str:
        """The stacks of all its threads; empty if it cannot say."""
        ...

    async def force(self) -> None:
        """End it and everything it has started, now. What cannot be forced is left alone."""
        ...

    async def suspend(self) -> None:
        """Return when nothing is in flight and nothing more is taken in."""
        ...

    async def resume(self) -> None:
        """Go on; also the withdrawal of a suspend that was not confirmed."""
        ...

    async def probe(self) -> bool:
        """Whether it is well, asked of itself. The caller sets the time limit."""
        ...

    def usage(self) -> Usage | None:
        """What it uses now, or `None` if nobody can say."""
        ...

    def tail(self, lines: int) -> list[str]:
        """The last lines it wrote."""
        ...
