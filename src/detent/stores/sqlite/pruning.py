"""Forgetting: ended jobs that a rule lets go, and workflows that have none left."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from msgspec.structs import asdict

from detent.stores.api import Retention
from detent.stores.sqlite.pending import spot_of
from detent.stores.sqlite.transaction import Transaction, stored_rows

__all__ = ["prune"]

_APART = (
    "erase_result",
    "erase_failures",
    "erase_logs",
    "erase_checkpoint",
    "erase_note",
    "forget_unique",
    "forget_promise",
    "unhand",
    "forget_body",
    "forget_job",
)


def prune(tx: Transaction, rules: Sequence[Retention], now: int, limit: int) -> int:
    """How many jobs went; the oldest ends first."""
    [sealed] = tx.execute("sealed").fetchone()
    walks = (_over(tx, rule, sealed, limit) for rule in rules)
    found = list(islice(dict.fromkeys(merge(*walks)), limit))
    _forget_jobs(tx, [seq for *_, seq in found])
    _forget_workflows(tx, rules, sealed, limit)
    tx.execute("forget_promises", now, limit)
    return len(found)


def _over(
    tx: Transaction, rule: Retention, sealed: int, limit: int
) -> list[tuple[int, str, str, int]]:
    tx.pending.flush()
    values = {**asdict(rule), "sealed": sealed, "limit": limit}
    return tx.ask("over", values)


def _forget_jobs(tx: Transaction, numbers: Sequence[int]) -> None:
    for row, stored in stored_rows(tx.connection, numbers):
        job, body = stored.job, stored.body
        tx.pending.count(spot_of(job, body.type, body.key), None)
        tx.execute_many("tag_drop", [(job.tenant, tag, job.id) for tag in body.tags])
        for statement in _APART:
            tx.execute(statement, row[0])
        tx.execute("forget_events", job.tenant, job.id)


def _forget_workflows(tx: Transaction, rules: Sequence[Retention], sealed: int, limit: int) -> None:
    """An ended workflow goes when it has no jobs left and is older than some rule asks for."""
    gone: set[tuple[str, str]] = set()
    for rule in rules:
        values = {"before": rule.before, "tenant": rule.tenant, "sealed": sealed, "limit": limit}
        gone.update(tx.ask("empty_workflows", values))
    for tenant, workflow in sorted(gone)[:limit]:
        steps = [step for (step,) in tx.execute("step_ids", tenant, workflow).fetchall()]
        tx.execute("forget_steps", tenant, workflow)
        tx.execute("forget_workflow", tenant, workflow)
        tx.execute_many("forget_events", [(tenant, one) for one in [workflow, *steps]])
        tx.pending.flows.pop((tenant, workflow), None)
