"""A pool process's end of the channel to its worker.

A thread reads it. When the worker is gone, that thread kills the whole group of this process: no
handler and nothing that one has started outlives the worker that it runs for.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final

from detent.engine.progress import Result
from detent.errors import ChannelBroken
from detent.runtime.executors.pool.interrupting import Interruption
from detent.runtime.executors.pool.lifeline import end_group
from detent.runtime.executors.pool.messages import (
    FRAME_BYTES_MAX,
    Answer,
    Begin,
    Found,
    Halt,
    Leave,
    Order,
    Word,
    error_of,
    order_of,
    plain,
)
from detent.runtime.process.frames import Frames, frame

_CHUNK: Final = 65_536
Asked = Future[list[Result]]


class Wire:
    """Says words, hears orders."""

    def __init__(self, end: socket.socket, interruption: Interruption) -> None:
        self._end = end
        self._halting = threading.Lock()
        self._is_halted = False
        self._halted: Callable[[], None] = _leave_it
        self._interruption = interruption
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Begin | None] = SimpleQueue()
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[Asked, list[Result]]] = {}
        self._is_ours = True
        end.set_inheritable(False)
        os.register_at_fork(after_in_child=self._forget)

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that was started, and not a copy that a handler made."""
        return self._is_ours

    def listen(self) -> None:
        """From now on a thread listens."""
        threading.Thread(target=self._listen, name="detent-wire", daemon=True).start()

    def jobs(self) -> Iterator[Begin]:
        """The jobs as they come, until there are no more."""
        while (begin := self._jobs.get()) is not None:
            yield begin

    def on_halt(self, halted: Callable[[], None]) -> None:
        """Call this when the run should stop; it may have been said before the run had begun."""
        with self._halting:
            self._halted = halted
            if self._is_halted:
                halted()

    def say(self, word: Word) -> None:
        """Send it whole, whatever interrupts us; copies of this process say nothing."""
        if not self._is_ours:
            return
        data = frame(plain(word), FRAME_BYTES_MAX)
        with self._interruption.shielded(), self._lock:
            self._end.sendall(data)

    def ask(self, made: Callable[[int], Word]) -> Asked:
        """Send a call; its answer is what was found, or the error that it was refused with."""
        number = next(self._numbers)
        asked: Asked = Future()
        # Whoever stops waiting cannot take it back: it is sent, and will be answered.
        asked.set_running_or_notify_cancel()
        if not self._is_ours:
            why = "This process is a copy that was forked: only the original can reach its worker"
            asked.set_exception(ChannelBroken(why))
            return asked
        self._asked[number] = (asked, [])
        self.say(made(number))
        return asked

    def _listen(self) -> None:
        frames = Frames(FRAME_BYTES_MAX)
        try:
            while data := self._end.recv(_CHUNK):
                for message in frames.feed(data):
                    self._hear(order_of(message))
        finally:
            # A worker that is gone, and one that talks nonsense, is no worker.
            end_group()

    def _hear(self, order: Order) -> None:
        match order:
            case Begin():
                self._is_halted = False
                self._halted = _leave_it
                self._jobs.put(order)
            case Leave():
                self._jobs.put(None)
            case Halt():
                with self._halting:
                    self._is_halted = True
                    self._halted()
            case Found():
                self._asked[order.call][1].append(order.result)
            case Answer():
                asked, found = self._asked.pop(order.call)
                if order.fault is None:
                    asked.set_result(found)
                else:
                    asked.set_exception(error_of(order.fault))

    def _forget(self) -> None:
        """After a fork: the channel belongs to the original."""
        self._is_ours = False
        self._end.close()


def _leave_it() -> None:
    """There is no run that could stop."""
