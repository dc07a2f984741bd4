"""How many slots there are, how many are free, and what became of the jobs that had one."""

from __future__ import annotations

import time
from typing import Final

from detent.runtime.executors.means import Kind
from detent.runtime.worker.settings import Settings

STUCK_S: Final = 3.0
"""A loop that has not turned for so long is held up."""


class Counts:
    """Plain numbers: written in the loop of the store, read from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.slots = settings.slots
        self._sync_slots = min(settings.sync_slots, settings.slots)
        self.slots_free = self.slots
        self.sync_free = self._sync_slots
        self.done = 0
        self.failed = 0
        self.lost = 0
        """Runs whose end counted no more, because their lease had ended."""
        self.abandoned = 0
        self.step_at = 0
        self.loop_at = 0
        self.turned = time.monotonic()
        """When the handlers' loop was last seen to turn."""
        self.is_stalled = False
        """Whether a handler has held that loop up for longer than is borne."""
        self.is_hopeless = False
        """Whether that loop is held up by a run that cannot be stopped."""

    @property
    def is_stuck(self) -> bool:
        """Whether a handler holds up the loop of all."""
        return time.monotonic() - self.turned > STUCK_S

    @property
    def wants_recycling(self) -> bool:
        """Whether so much is stuck that a new process would do better."""
        return self.is_hopeless or 2 * self.abandoned >= self._sync_slots

    def reserve(self, size: int, *, is_sync: bool) -> None:
        """So many slots are asked for."""
        self.slots_free -= size
        self.sync_free -= size if is_sync else 0

    def taken(self, size: int, got: int, sync: int, *, is_sync: bool) -> None:
        """Of those that were asked for, so many jobs came, some of them for threads."""
        self.slots_free += size - got
        self.sync_free += (size if is_sync else 0) - sync

    def filed(self, done: int, failed: int, refused: int) -> None:
        """What became of so many reports."""
        self.done += done
        self.failed += failed
        self.lost += refused

    def free(self, kind: Kind, *, is_abandoned: bool) -> None:
        """A run has ended. A thread that goes on all the same keeps its slot for good."""
        if is_abandoned and kind is Kind.THREAD:
            self.abandoned += 1
            return
        self.slots_free += 1
        self.sync_free += 0 if kind is Kind.ASYNC else 1
