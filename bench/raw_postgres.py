"""The statements of the PostgreSQL store in tight loops: what the database alone can do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import asyncpg

from detent.stores.postgres.address import read
from detent.stores.postgres.arrays import FRESH, listed
from detent.stores.postgres.connection import open_connection
from detent.stores.postgres.ends import joined
from detent.stores.postgres.lanes import Lane, numbers_of
from detent.stores.postgres.marks import NO_MARKS
from detent.stores.postgres.statements import SQL

__all__ = ["Raw"]

T = TypeVar("T")
_NOW = 1_700_000_000_000_000
_LANE = Lane("", "default", "mail.send", "python", "pull", "")
_MADE = '{"made":{"profile":"python","delivery":"pull"},"queue":"default","priority":0,"place":1}'
_HELD: dict[str, Any] = {
    "tenant": "",
    "holder": "w1",
    "queues": ["default"],
    "types": None,
    "profiles": ["python"],
    "lease_spans": listed([None]),
    "wire": False,
    "delivery": "pull",
    "is_push": False,
    "state": "active",
    "event": "claim",
    "actor": "worker",
    "actor_id": "w1",
    "now": _NOW,
    **NO_MARKS,
}


class Raw:
    """One connection with the settings of the store, and nothing else of it."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = self._wait(open_connection(read(url)))
        self.lane = self._wait(numbers_of(self._connection, {_LANE}))[_LANE]
        self._last = 10**9
        self._active: list[str] = []
        self._held: list[str] = []

    def close(self) -> None:
        """Give the connection back."""
        self._wait(self._connection.close())
        self._loop.close()

    def _wait(self, asked: Awaitable[T]) -> T:
        return self._loop.run_until_complete(asked)

    def _send(self, name: str, told: dict[str, Any]) -> list[asyncpg.Record]:
        statement = SQL[name]
        values = [told[one] for one in statement.names]
        return self._wait(self._connection.driver.fetch(statement.text, *values))

    def push(self, number: int) -> None:
        """New jobs with body and event, in one commit."""
        first, self._last = self._last + 1, self._last + number
        rows = [self._new(f"{place:032}", place) for place in range(first, self._last + 1)]
        told: dict[str, Any] = (
            {"fresh": rows} if number > 1 else dict(zip(FRESH, *rows, strict=True))
        )
        self._send("enqueue" if number > 1 else "enqueue_one", told)

    def _new(self, job: str, place: int) -> tuple[Any, ...]:
        known = {**_FRESH, "id": job, "place": place, "lane": self.lane}
        return tuple(known.get(name) for name in FRESH)

    def step(self, number: int) -> None:
        """Complete what was claimed, claim as many again, in one commit."""
        leases = [f"lease-{self._last + one}" for one in range(number)]
        self._last += number
        told: dict[str, Any] = {
            **_ended(sorted(zip(self._active, self._held, strict=True))),
            **_HELD,
            "leases": joined(leases),
            "first_lease": min(leases),
            "last_lease": max(leases),
            "rest": ',"holder":"w1","wire":false',
            "wanted": number,
            "command_id": "command-2",
        }
        rows = self._send("end_and_claim", told)
        assert rows[-1]["id"] is not None, "the backlog is used up"
        assert len(rows) == number, "the backlog is used up"
        self._active, self._held = [row["id"] for row in rows], [row["lease"] for row in rows]


def _ended(held: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        **_ENDED,
        "ends": len(held),
        "end_ids": joined([job for job, _ in held]),
        "end_fences": joined(["2"] * len(held)),
        "end_leases": joined([lease for _, lease in held]),
        "end_commands": joined(["command-1"] * len(held)),
    }


_ENDED: dict[str, Any] = {
    "end_tenant": "",
    "end_at": _NOW,
    "end_name": "complete",
    "end_source": "active",
    "end_state": "completed",
    "end_actor": "worker",
    "end_actor_id": "w1",
    "end_cause": "succeeded",
    "end_rest": '{"cause":"succeeded"}',
    "end_rests": None,
    "end_results": None,
}
_FRESH: dict[str, Any] = {
    "tenant": "",
    "state": "available",
    "profile": "python",
    "queue": "default",
    "priority": 0,
    "delivery": "pull",
    "allowed": 3,
    "losses_allowed": 3,
    "at": _NOW,
    "held": False,
    "type": "mail.send",
    "payload": "[]",
    "meta": "{}",
    "actor": "user",
    "actor_id": "bench",
    "command_id": "command-1",
    "rest": _MADE,
}
