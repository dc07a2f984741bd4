"""What a store promises: two small protocols, a write side and a read side.

A store is dumb. It commits what the lifecycle decided, whole or not at all, behind fences; it hands
out what may be claimed and what is due, each item to one caller; and it remembers. Every call takes
many items, commits once and answers per item. Instants are microseconds handed in by the caller: no
statement asks the database for the time.

The unit of all-or-nothing is a `Unit`: the records of one decision with their events. Many units
share a transaction; one that cannot be committed never hurts its neighbours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from detent.lifecycle.event import Event
from detent.lifecycle.job import Lease
from detent.lifecycle.seal import Block
from detent.lifecycle.worker import Instance
from detent.lifecycle.workflow import Flow, Workflow
from detent.stores.limits import Limit, Used
from detent.stores.select import FIRST_PAGE, Filter, Page
from detent.stores.shapes import (
    RECORDS_MAX,
    UNIT_MAX,
    Body,
    Claimed,
    Committed,
    Counted,
    Due,
    Failure,
    Fair,
    Fed,
    FlowMove,
    GateKind,
    GateRow,
    Idempotency,
    Key,
    LeaseAlive,
    Limited,
    LimitKind,
    LimitRow,
    Line,
    Logged,
    Move,
    Named,
    New,
    Note,
    Outcome,
    Own,
    Passed,
    Record,
    Rejected,
    Retention,
    Stale,
    StaleFlow,
    StaleRecord,
    Stepped,
    Stored,
    Taken,
    Unique,
    Unit,
    Want,
    key_of,
    name_of,
)
from detent.stores.workers import Death, Life, Process, Who, WorkerRow

__all__ = [
    "RECORDS_MAX",
    "UNIT_MAX",
    "Anywhere",
    "Body",
    "Claimed",
    "Committed",
    "Counted",
    "Death",
    "Due",
    "Failure",
    "Fair",
    "Fed",
    "FlowMove",
    "GateKind",
    "GateRow",
    "Glancing",
    "Holding",
    "Idempotency",
    "Key",
    "LeaseAlive",
    "Life",
    "Limit",
    "LimitKind",
    "LimitRow",
    "Limited",
    "Line",
    "Logged",
    "Move",
    "Named",
    "Near",
    "New",
    "Note",
    "Outcome",
    "Own",
    "Passed",
    "Process",
    "ReadStore",
    "Record",
    "Rejected",
    "Retention",
    "SideBySide",
    "Stale",
    "StaleFlow",
    "StaleRecord",
    "Stepped",
    "Store",
    "Stored",
    "Taken",
    "Unique",
    "Unit",
    "Used",
    "Want",
    "Who",
    "WorkerRow",
    "WriteStore",
    "key_of",
    "name_of",
]


class WriteStore(Protocol):
    """The side that changes something. Every call is one commit."""

    async def step(self, units: Sequence[Unit], *, now: int, want: Want | None = None) -> Stepped:
        """Commit the units and claim what is wanted, in one transaction.

        More than `RECORDS_MAX` records and leases together are refused with `BatchTooLarge`,
        unless it is one unit alone: that may have `UNIT_MAX`.
        """
        ...

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[Due]:
        """Jobs that are due by now, each to one caller: `wake_at` moves to now + `hold_us`."""
        ...

    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[Record]:
        """The same for small records. The hold moves no version."""
        ...

    async def note(self, notes: Sequence[tuple[Key, str, Note]], *, now: int) -> Sequence[bool]:
        """Keep what the holder of a lease says; false where that lease has ended."""
        ...

    async def beat(self, workers: Sequence[WorkerRow], *, now: int) -> Sequence[bool]:
        """Register or renew worker instances; false for one that is lost for good.

        Renewing touches nothing but `alive_until`, `state` and the time of the beat.
        """
        ...

    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        """Mark instances lost, for good, if their time is over by `now`; false if it is not.

        Their jobs are due from then on, in whatever batches `take_due` hands them out.
        """
        ...

    async def bury(self, deaths: Sequence[Death], *, now: int) -> Sequence[bool]:
        """The same at once, on the word of somebody who knows; false where nobody believes it.

        That is whoever beats for the instance, or whoever names the very process that it is.
        """
        ...

    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        """Forget instances that are gone since before then: rows, and histories that are sealed.

        An instance that has jobs in hands stays, and so does one whose history does not tell its
        end: nothing else would. How many rows and histories went.
        """
        ...

    async def ship(self, lives: Sequence[Life], *, now: int) -> Sequence[bool]:
        """Write down what happened to instances; false for one that is at another version.

        All of it is one commit. `BadHistory` for what no worker can have lived.
        """
        ...

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        """Move the end of wire leases to what is asked; false for one that has ended.

        No version moves. When the new end is earlier than the job's `wake_at`, that is lowered to
        it, so that a loss is noticed in time; otherwise nothing of the job is touched. Whatever is
        written to the job later, its `wake_at` is never after the end of the lease it goes on with.
        """
        ...

    async def prune(self, rules: Sequence[Retention], *, now: int, limit: int = 1_000) -> int:
        """Forget ended jobs that a rule lets go, oldest end first; how many were.

        Each goes whole, in one of as many commits as a store takes for all of them.
        All their events must be sealed, and their workflow, if they have one, must have ended;
        with its last job the workflow goes. Idempotency keys that have run out go on the way, and
        so do the turns of those who were served longer than a day ago.
        """
        ...

    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        """Forget results whose time is up, the oldest first, and nothing else; how many went.

        What a job of a workflow came to is looked at again later, until the workflow has ended.
        """
        ...

    async def seal(self, *, limit: int = 10_000) -> Block | None:
        """Seal the oldest events not sealed yet into the next block; `None` if there are none."""
        ...

    async def append_logs(self, lines: Sequence[tuple[Key, Line]]) -> Sequence[int]:
        """Append lines; the cursor of each, or 0 where it cannot be kept.

        That is where there is no such job, where it was erased, and where a text is no text.
        """
        ...


class ReadStore(Protocol):
    """The side that only looks. Every call sees one moment.

    Names that no store can hold (with NUL or half a character) are the names of nothing.
    """

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        """The jobs of these keys, in order."""
        ...

    async def heads(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        """The same without what may be large: a reader of many jobs holds a few kB of each.

        Payload, result and checkpoint are left out, metadata too, and the details and backtraces of
        failures (`head_of` in `shapes`).
        """
        ...

    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        """The jobs that fit, newest first."""
        ...

    async def flows(self, keys: Sequence[Key]) -> Sequence[Flow | None]:
        """The workflows of these keys with their steps and tallies, in order."""
        ...

    async def find_workflows(
        self, tenant: str | None = None, state: str | None = None, page: Page = FIRST_PAGE
    ) -> Sequence[Workflow]:
        """The workflows that fit, newest first."""
        ...

    async def records(
        self, kind: str, tenant: str = "", after: str | None = None, limit: int = 1_000
    ) -> Sequence[Record]:
        """The small records of a kind, by id, after one."""
        ...

    async def record(self, keys: Sequence[Named]) -> Sequence[Record | None]:
        """The small records of these kinds, tenants and ids, in order."""
        ...

    async def limits(self, tenant: str = "") -> Sequence[Limited]:
        """The limits in force and how much of each is used, by kind and name."""
        ...

    async def gates(self, tenant: str = "") -> Sequence[GateRow]:
        """The gates of a tenant that were ever closed or opened, by kind and name."""
        ...

    async def overdue(self, *, now: int, limit: int = 100) -> Sequence[WorkerRow]:
        """Worker instances whose time is over by `now` but that nobody has declared lost yet."""
        ...

    async def workers(self, limit: int = 1_000, *, gone: bool = False) -> Sequence[WorkerRow]:
        """Worker instances that are not marked lost, those trusted longest first.

        With `gone` those that are, as long as they are remembered, the latest first.
        """
        ...

    async def instances(self, keys: Sequence[Key]) -> Sequence[Instance | None]:
        """What the histories of these worker instances lead to, in order."""
        ...

    async def find_instances(
        self, slot: str | None = None, after: Key | None = None, limit: int = 1_000
    ) -> Sequence[Instance]:
        """Those of a slot, or all, by tenant and id, after one."""
        ...

    async def held_by(self, holder: str, limit: int, but: Sequence[str] = ()) -> Sequence[Stored]:
        """Jobs in the hands of one holder, but for those under these leases."""
        ...

    async def counts(self, tenant: str | None = None) -> Sequence[Counted]:
        """Exact numbers by queue and state."""
        ...

    async def weight(self, tenant: str, queue: str) -> int:
        """How many bytes the payloads of its jobs have that have not ended."""
        ...

    async def history(self, key: Key) -> Sequence[Event]:
        """All events of a record, oldest first."""
        ...

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[Fed]]:
        """The same for many records at once, in order, each event at its position in the feed.

        A position of 0 means that the feed has not taken the event in yet.
        """
        ...

    async def leases(self, leases: Sequence[str]) -> Sequence[Lease | None]:
        """The rows of these wire leases, in order; `None` for one that has ended."""
        ...

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[Fed]:
        """All events in their one order, after a position."""
        ...

    async def leaves(self, after: int = 0, limit: int = 10_000) -> Sequence[tuple[int, bytes]]:
        """What was sealed at each position; it outlives the event that is forgotten."""
        ...

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[Block]:
        """The sealed blocks after a number, oldest first."""
        ...

    async def logs(self, key: Key, after: int = 0, limit: int = 1_000) -> Sequence[Logged]:
        """The log of a job after a cursor."""
        ...

    async def log_tail(self, after: int = 0, limit: int = 1_000) -> Sequence[Logged]:
        """The lines of all jobs after a position."""
        ...

    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:
        """Until something that could be claimed may exist; false when the time ran out first.

        With the `seen` of a claim that was in vain it ends at once if anything has come since that
        claim looked, whoever else has claimed meanwhile; without, it waits for what comes after the
        call. It may end early, never late.
        """
        ...

    def now(self) -> int:
        """The store's own time, in microseconds: what callers go by."""
        ...

    async def keys(self, after: Key | None = None, limit: int = 1_000) -> Sequence[Key]:
        """The keys of all jobs there are, in their order, after one; readable or not."""
        ...


class Store(WriteStore, ReadStore, AbstractAsyncContextManager["Store"], Protocol):
    """Both sides of one database; entering it connects, leaving it closes."""

    # Which database it is, as clients are told.
    backend: str
    has_transactions: bool
    """Whether users have transactions of their own there, which `inside` can write into."""


@runtime_checkable
class Anywhere(Protocol):
    """What a store has if its `step` may be awaited in any loop: then others may also wait for it.

    Whoever makes jobs there needs no way to the loop in which the store was opened.
    """

    def step_here(self, units: Sequence[Unit], *, now: int) -> Stepped:
        """The same as `step` without a wish, waited for in the calling thread."""
        ...


@runtime_checkable
class Near(Protocol):
    """What a store has if a lone caller may store a new job from its own loop.

    Whoever has company shares commits with it, in the loop in which the store was opened.
    """

    async def step_near(
        self, units: Sequence[Unit], cross: Callable[[], Awaitable[Stepped]]
    ) -> Stepped:
        """Step with units that fit, from here or, if need be, by crossing over."""
        ...


@runtime_checkable
class Glancing(Protocol):
    """What a store has if it sees at a glance which runs need a look: to read all takes long."""

    async def unquiet(self, runs: Sequence[tuple[Key, str]]) -> Sequence[Key]:
        """Those jobs that are not held under that lease any more, or were asked to stop."""
        ...


@runtime_checkable
class Holding(Protocol):
    """What a store has if it can be asked who has what; a server far away sees to that itself."""

    async def held_by(self, holder: str, limit: int, but: Sequence[str] = ()) -> Sequence[Stored]:
        """Jobs in the hands of one holder, but for those under these leases."""
        ...


@runtime_checkable
class SideBySide(Protocol):
    """What a store has if it takes several steps at once, each on a connection of its own."""

    @property
    def connections(self) -> int:
        """How many."""
        ...
