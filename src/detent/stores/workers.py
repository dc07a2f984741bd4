"""Worker instances as a store knows them: who they are, how they are known to be gone, their lives.

A row is written once, when the instance registers; renewing it touches only the columns of the
beat. What happened to an instance is a history like any other, of kind `worker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from detent.errors import BadHistory
from detent.lifecycle.event import Event
from detent.lifecycle.worker import WORKER, Instance

LATE_US: Final = 60_000_000
"""A beat that is older than the last one changes nothing; one older than that is a clock set back.

Calls that nobody waits for any more may be carried out late, and must not take back what a later
one has proven.
"""


class Process(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for another: a pid alone is used again.

    `boot` names one run of one kernel, and the pids that are seen there. `started_at` is the start
    of the process as the kernel tells it, by the kernel's own clock.
    """

    host: str
    boot: str
    pid: int
    started_at: int


class Who(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is fixed about an instance when it registers.

    `supervisor` is who beats for it, and `keeper` its process; of an embedded instance that is the
    process it runs in. While the keeper lives, it alone tells of the end. `queues`, `types` and
    `tenants` are those it takes; `None` means any.
    """

    supervisor: str = ""
    process: Process | None = None
    keeper: Process | None = None
    started_at: int = 0
    embedded: bool = False
    slot: str = ""
    slots: int = 1
    queues: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    tenants: tuple[str, ...] | None = None


class Death(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody's word that an instance is gone: its supervisor's, or a proof by its process.

    `cause` is a word of the worker lifecycle. A negative `exit_code` is a signal. `crowded`: while
    it held jobs that ran apart from it, in processes of their own, others ran inside of it.
    `lapsed`: nobody could renew it in time, so it was stopped; no job had any part in that.
    """

    id: str
    supervisor: str = ""
    process: Process | None = None
    cause: str = "lost"
    exit_code: int | None = None
    crowded: bool = False
    lapsed: bool = False


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker instance: trusted until `alive_until`, or gone for good.

    `renews` is said by whoever was registered before: if the store has no row of it any more, it
    was forgotten as gone, and stays so. `beat_at`, `ended_at` and `death` are the store's to write.
    """

    id: str
    alive_until: int
    lost: bool = False
    who: Who | None = None
    state: str = ""
    beat_at: int = 0
    ended_at: int | None = None
    death: Death | None = None
    renews: bool = False


class Life(msgspec.Struct, frozen=True):
    """How the history of an instance goes on after `version`: events, and what they lead to."""

    version: int
    instance: Instance
    events: tuple[Event, ...]


def is_believed(who: Who | None, death: Death) -> bool:
    """Only who beats for it, or who names the very process, can know that it is gone."""
    if who is None:
        return False
    is_its_own = death.supervisor != "" and death.supervisor == who.supervisor
    return is_its_own or (death.process is not None and death.process == who.process)


def newest(workers: Iterable[WorkerRow]) -> dict[str, WorkerRow]:
    """The last word about each."""
    return {row.id: row for row in workers}


def need_legal(lives: Sequence[Life]) -> None:
    """Refuse what no worker can have lived, before any of it is written."""
    keys = [(life.instance.tenant, life.instance.id) for life in lives]
    if len(keys) != len(set(keys)):
        raise BadHistory("an instance stands twice in one shipment")
    for life in lives:
        why = _wrong(life)
        if why is not None:
            name, version = life.instance.id, life.version + 1
            raise BadHistory(f"worker {name} after version {life.version}: {why}", version=version)


def _wrong(life: Life) -> str | None:
    one, versions = life.instance, [event.version for event in life.events]
    if not versions or versions != list(range(life.version + 1, one.version + 1)):
        return "its events do not lead from one version to the other"
    if any(_misfiled(one, event) for event in life.events):
        return "an event of another record, or one that no worker knows, stands among its events"
    return None


def _misfiled(one: Instance, event: Event) -> bool:
    told = (event.kind, event.tenant, event.record)
    triple = (event.source, event.name, event.target)
    return told != (WORKER.name, one.tenant, one.id) or triple not in WORKER.triples
