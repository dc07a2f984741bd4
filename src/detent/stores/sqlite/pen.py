"""Who may use the connection that writes: the thread that writes for all, or one who writes alone.

A caller that waits anyway may write by itself: to wake a thread and to be woken by it takes longer
than most of what it would do for us. But code of ours in a thread of others can be interrupted
between any two of its steps, by a signal or by an exception that is raised into that thread; and
whoever is interrupted must not keep the pen, nor the turn of this process, nor a transaction. So
all of it is one call into C, which runs a list of calls. Python looks for signals between its own
instructions only, and there are none in between.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from itertools import starmap
from operator import call
from queue import Empty, SimpleQueue
from typing import Final

from detent.errors import StoreError
from detent.stores.sqlite.connection import BUSY_MS
from detent.stores.sqlite.faults import broken, is_busy, is_fatal
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.turns import Calls, Turns

_TAKEN: Final = ["taken"]
"""What is noted of a run that was begun and did not come to its end."""


class Pen:
    """Held by one thread at a time: `with pen: ...` waits for it, `write` does not."""

    def __init__(self, connection: sqlite3.Connection, turns: Turns) -> None:
        self._connection = connection
        connection.execute(SQL["set_moment"])
        # One for all: to make one for each statement takes longer than the shortest of them.
        self._execute = connection.cursor().execute
        self._turns = turns
        self._lying: SimpleQueue[None] = SimpleQueue()
        self._lying.put(None)
        self.stopped_by: StoreError | None = None
        """Why nobody may write any more, if that is so."""

    def take_for_good(self) -> None:
        """Wait for it, and nobody gets it any more."""
        self.__enter__()

    def __enter__(self) -> None:
        self._need_running()
        self._lying.get()
        try:
            self._need_running()
        except StoreError:
            self._lying.put(None)
            raise
        # Of somebody who wrote alone and did not come to the end.
        self._connection.rollback()

    def __exit__(self, *_: object) -> None:
        self._lying.put(None)

    def _need_running(self) -> None:
        if self.stopped_by is not None:
            raise self.stopped_by

    def begin(self) -> None:
        """Begin a transaction, once somebody's own connection has ended its one.

        SQLite itself waits only for a moment: who writes alone hears no signal while it does.
        """
        until = time.monotonic() + BUSY_MS / 1_000
        while True:
            try:
                self._execute(SQL["begin"])
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
            else:
                return

    def run(self, statements: Calls) -> None:
        """Run a whole transaction, one after the other, for whoever holds it."""
        self.begin()
        for statement in statements[1:]:
            self._execute(*statement)

    def write(self, statements: Calls) -> bool:
        """Whether these statements, a whole transaction, are on disk.

        If not, nothing of them is, and the thread that writes will find out why: somebody has the
        pen or the turn, or the database has refused something.
        """
        if self.stopped_by is not None or self._turns.is_in_line:
            return False
        noted: list[str] = []
        steps = starmap(call, self._steps(statements, noted))
        undo = starmap(call, (*self._turns.leaving, (self._lying.put, None)))
        try:
            # A queue of no length takes what it is given, one by one, and all of that is C.
            deque(steps, 0)
        except Empty:
            return False
        except BaseException as error:
            if noted != _TAKEN:
                # It came before or after, and is for the caller alone.
                raise
            # Up to here nothing was called after what failed, so that nobody could interrupt us.
            deque(undo, 0)
            self._hear(error)
            return False
        return True

    def _steps(self, statements: Calls, noted: list[str]) -> Calls:
        """All that is to be called, one after the other, for as long as nothing fails."""
        execute = self._execute
        return (
            (self._lying.get_nowait,),
            (noted.append, "taken"),
            *self._turns.taking,
            *[(execute, *statement) for statement in statements],
            *self._turns.giving,
            (noted.append, "laid down"),
            (self._lying.put, None),
        )

    def _hear(self, error: BaseException) -> None:
        if isinstance(error, sqlite3.Error) and is_fatal(error):
            self.stopped_by = broken(error)
