"""What is asked of the thread that writes, and how the answer gets to whoever asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from detent.stores.births import Birth
from detent.stores.sqlite.transaction import Transaction

Answer = tuple[Any, BaseException | None]


class Operation:
    """Something to do inside a transaction, and who awaits its answer.

    If it is the birth of one job and nothing else, that can be done without all the rest.
    """

    __slots__ = ("answered", "birth", "loop", "run")

    def __init__(self, run: Callable[[Transaction], Any], birth: Birth | None = None) -> None:
        self.run = run
        self.birth = birth
        self.loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[Any] = self.loop.create_future()


class Waited:
    """The same for somebody who has no loop and waits."""

    __slots__ = ("_answer", "_is_open", "birth", "run")

    def __init__(self, run: Callable[[Transaction], Any], birth: Birth | None = None) -> None:
        self.run = run
        self.birth = birth
        self._answer: Answer = None, None
        self._is_open = threading.Lock()
        self._is_open.acquire()

    def set(self, answer: Answer) -> None:
        """Give the answer; called by the thread that writes."""
        self._answer = answer
        self._is_open.release()

    def get(self) -> Any:
        """Its answer, waited for."""
        self._is_open.acquire()
        answer, error = self._answer
        if error is not None:
            raise error
        return answer


def deliver(answered: Iterable[tuple[Operation | Waited, Answer]]) -> None:
    """Hand the answers over, with one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Answer]]] = {}
    for operation, answer in answered:
        if isinstance(operation, Waited):
            operation.set(answer)
            continue
        by_loop.setdefault(operation.loop, []).append((operation.answered, answer))
    for loop, answers in by_loop.items():
        # Whoever closed their loop is not waiting any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: list[tuple[asyncio.Future[Any], Answer]]) -> None:
    for future, (answer, error) in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)
