"""Coming back: every instance that a dead supervisor left open is ended, with its process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from detent.lifecycle import worker as w
from detent.lifecycle.worker import Accepted, Answer, Instance
from detent.runtime.supervisor.body import Born
from detent.runtime.supervisor.tree import Tree

_log = logging.getLogger("detent.supervisor")


class Remains(Protocol):
    """What may be left of a process that a dead supervisor started: pid and birth, never pid alone.

    Usually nothing: a worker that loses its supervisor ends itself. After a reboot surely nothing.
    """

    @property
    def boot(self) -> str:
        """Which boot of the machine this is: births are counted from there."""
        ...

    def is_alive(self, born: Born) -> bool:
        """Whether that very process still exists."""
        ...

    async def force(self, born: Born) -> None:
        """End it and all of its session; come back when it is gone."""
        ...


async def recover(tree: Tree, remains: Remains | None) -> list[Instance]:
    """End what was left open, as lost; answers the instances as they ended."""
    lost = []
    if remains is not None and not tree.journal.is_of_boot(remains.boot):
        remains = None
    for record in tree.journal.unended():
        ended = await _bury(tree, record, remains)
        _log.warning("lost %s of slot %s while nobody watched", record.id, record.slot)
        lost.append(ended)
    if lost:
        tree.tell()
    return lost


async def _bury(tree: Tree, record: Instance, remains: Remains | None) -> Instance:
    """One that still runs is forced first, and the order to do so is written before."""
    if record.pid is not None and record.process_at is not None and remains is not None:
        born = Born(record.pid, record.process_at)
        if remains.is_alive(born):
            record = _moved(tree, record, w.stop, force_at=tree.clock.now())
            if record.state is w.WorkerState.STOPPING:
                record = _moved(tree, record, w.order_kill)
            await remains.force(born)
    return _moved(tree, record, w.lose)


def _moved(tree: Tree, record: Instance, verb: Callable[..., Answer], **more: Any) -> Instance:
    answer = verb(record, tree.order(), **more)
    return tree.enter(record, answer) if isinstance(answer, Accepted) else record
