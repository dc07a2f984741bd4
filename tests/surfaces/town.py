"""Two servers of one store: nothing that one of them knows alone can be what keeps a promise."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

from tests.surfaces.server import Answer, Client, Running

BOUND = 5
PUSHERS = 12


class Town:
    """Two servers of one store, and those who come to them."""

    def __init__(self, servers: list[Running]) -> None:
        self._ports = cycle([server.port for server in servers])
        self._clients: list[Client] = []
        self.client = self.visitor()

    def visitor(self) -> Client:
        """Somebody new, at the next server."""
        self._clients.append(Client(next(self._ports)))
        return self._clients[-1]

    def bound(self, queue: str, depth: int = BOUND) -> None:
        """Let the queue hold so many; both servers know of it as soon as this returns."""
        told = {"backpressure": {"max_depth": depth, "strategy": "reject"}}
        for one in (self.client, self.visitor()):
            one.put(f"/admin/queues/{queue}/config", told).ok()

    def at_once(self, work: Callable[[Client, int], Answer], each: int = 1) -> list[Answer]:
        """The answers to many who begin at the same moment."""
        start = threading.Barrier(PUSHERS)

        def go(client: Client) -> list[Answer]:
            start.wait(20)
            return [work(client, number) for number in range(each)]

        visitors = [self.visitor() for _ in range(PUSHERS)]
        with ThreadPoolExecutor(PUSHERS) as pool:
            return [answer for some in pool.map(go, visitors) for answer in some]

    def live(self, queue: str) -> int:
        """How many jobs of the queue have not ended."""
        found: int = self.client.get(f"/queues/{queue}/stats").ok()["stats"]["depth"]
        return found

    def close(self) -> None:
        for one in self._clients:
            one.close()


def job(queue: str, *args: Any, **options: Any) -> dict[str, Any]:
    return {"type": "x", "args": args, "options": {"queue": queue, **options}}


def statuses(answers: list[Answer]) -> Counter[int]:
    return Counter(answer.status for answer in answers)
