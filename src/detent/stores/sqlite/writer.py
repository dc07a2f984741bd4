"""The one thread that writes: whatever has queued up is one transaction, and one sync to disk."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from detent.errors import StoreClosed, StoreError, StoreUnavailable
from detent.stores.api import Stepped
from detent.stores.births import Birth
from detent.stores.sqlite.bearing import alone
from detent.stores.sqlite.faults import broken, is_fatal, is_ours, translated
from detent.stores.sqlite.growing import Growth
from detent.stores.sqlite.operations import Answer, Operation, Waited, deliver
from detent.stores.sqlite.pen import Pen
from detent.stores.sqlite.sleeping import Sleep
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.transaction import Transaction
from detent.stores.sqlite.turns import Calls, Turns
from detent.stores.sqlite.units import COMMITTED

T = TypeVar("T")
BATCH_S: Final = 0.02
"""How long one transaction may take before others get their turn."""
_ROW_S: Final = 5e-6
_HANDFUL: Final = 16
"""After every so many that wait the thread may go first: it writes while others are asked for."""
_BORN: Final = Stepped((COMMITTED,))


class Writer:
    """Owns the write connection from the first to the last transaction of this process.

    A lone caller waits for nobody: the thread starts with whatever is there. Callers that come
    while it syncs share the next transaction. Answers are given after COMMIT has returned.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        turns: Turns,
        sleep: Sleep,
        on_change: Callable[[], None],
        growth: Growth,
    ) -> None:
        self._connection = connection
        self._turns = turns
        self._sleep = sleep
        self._on_change = on_change
        self._growth = growth
        self._queue: deque[Operation | Waited] = deque()
        # A signal may come while it is held, and who answers it may want to write as well.
        self._putting = threading.RLock()
        self._is_asleep = False
        self._is_closing = False
        self._is_watched = False
        self._seen_version = self._data_version()
        self._waiting_rows = 0
        self._has_company = False
        """Whether the last transaction was shared: who comes next is not alone, most likely."""
        self._pen = Pen(connection, turns)
        self._thread = threading.Thread(target=self._work, name="detent-sqlite-writer", daemon=True)
        self._thread.start()

    def do(self, run: Callable[[Transaction], T], birth: Birth | None = None) -> Awaitable[T]:
        """What the operation answers, once its transaction is on disk."""
        operation = Operation(run, birth)
        self._put(operation)
        return operation.answered

    def do_here(self, run: Callable[[Transaction], T]) -> T:
        """The same, waited for in this thread, whether it has a loop or not."""
        operation = Waited(run)
        self._put(operation)
        try:
            answer: T = operation.get()
        except BaseException:
            # Whoever stops waiting (a signal, say) does not want it to go on unseen.
            with suppress(ValueError, IndexError):
                self._queue.remove(operation)
            raise
        return answer

    def bear_here(self, birth: Birth) -> Stepped | None:
        """What the birth of one job answers, written in this thread; nothing if it cannot be.

        Who finds that somebody waits, or writes, waits with them and shares their transaction.
        """
        if self._queue or self._has_company or self._is_watched or self._is_closing:
            return None
        statements = alone(birth)
        if statements is None:
            return None
        try:
            return _BORN if self._pen.write(statements) else None
        finally:
            # Also if a signal came right after the commit.
            self._on_change()

    def _put(self, operation: Operation | Waited) -> None:
        with self._putting:
            if self._is_closing:
                raise StoreClosed("The store is closed")
            self._queue.append(operation)
            many = len(self._queue)
        self._wake()
        if many % _HANDFUL == 0:
            # A busy loop keeps Python's lock; without it we would only begin when all are here.
            time.sleep(0)

    def _wake(self) -> None:
        # Whoever goes to sleep says so before a last look: one of both sees the other.
        if self._is_asleep:
            self._is_asleep = False
            self._sleep.wake()

    def watch(self, is_watched: bool) -> None:
        """Whether anybody wants to hear of what other processes commit."""
        with self._putting:
            if self._is_closing:
                return
            self._is_watched = is_watched
        if is_watched:
            self._wake()

    def close(self) -> None:
        """Do what is still in the queue, then close the connection."""
        with self._putting:
            self._is_closing = True
        self._wake()
        self._thread.join()
        # Whoever writes alone comes to the end, and nobody begins.
        with suppress(StoreError):
            self._pen.take_for_good()
        self._sleep.close()
        # Whoever keeps the turn for ever cannot keep us from going; closing twice is harmless.
        with suppress(StoreUnavailable), self._turns:
            self._connection.close()
        self._connection.close()
        self._turns.close()

    # --- the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while self._has_work():
            if self._queue:
                self._serve()
                self._growth.look()
            self._look_around()

    def _has_work(self) -> bool:
        """Sleep until there is something to do; false when all is done and we are closing."""
        if not self._queue and not self._is_closing:
            self._is_asleep = True
            if not self._queue and not self._is_closing:
                (self._sleep.doze if self._is_watched else self._sleep.rest)()
            self._is_asleep = False
        return bool(self._queue) or not self._is_closing

    def _serve(self) -> None:
        """One transaction, and its answers."""
        taken: list[Operation | Waited] = []
        has_news = False
        try:
            with self._pen, self._turns:
                answers, has_news = self._transact(taken)
        except (StoreError, OSError) as error:
            # Stopped before anything was begun, there is no use in waiting: all hear it.
            taken = taken or [self._queue.popleft() for _ in range(len(self._queue))]
            answers = [(None, _coded(error))] * len(taken)
        self._has_company = len(taken) > 1
        if self._is_watched:
            self._sleep.know()
        if has_news:
            self._on_change()
        deliver(zip(taken, answers, strict=True))

    def _transact(self, taken: list[Operation | Waited]) -> tuple[list[Answer], bool]:
        """All at once if the database takes it; otherwise again, each operation by itself."""
        try:
            try:
                lone = self._lone(taken)
                if lone is not None:
                    self._pen.run(lone)
                    return [(_BORN, None)], True
                return self._attempt(self._next(taken), is_careful=False)
            except Exception as error:
                self._roll_back()
                if is_ours(error):
                    raise
                return self._attempt(taken, is_careful=True)
        except sqlite3.Error as error:
            self._roll_back()
            if is_fatal(error):
                self._pen.stopped_by = broken(error)
            raise self._pen.stopped_by or translated(error) from error

    def _lone(self, taken: list[Operation | Waited]) -> Calls | None:
        """The statements of the only one who waits, if it is a birth and nothing else."""
        is_alone = len(self._queue) == 1 and not self._has_company
        birth = self._queue[0].birth if is_alone else None
        statements = None if birth is None else alone(birth)
        if statements is not None:
            taken.append(self._queue.popleft())
        return statements

    def _next(self, taken: list[Operation | Waited]) -> Iterable[Operation | Waited]:
        """Operations from the queue until this transaction has had its time."""
        started = time.perf_counter()
        while self._queue:
            operation = self._queue.popleft()
            taken.append(operation)
            yield operation
            if time.perf_counter() - started + self._waiting_rows * _ROW_S > BATCH_S:
                return

    def _attempt(
        self, operations: Iterable[Operation | Waited], *, is_careful: bool
    ) -> tuple[list[Answer], bool]:
        self._pen.begin()
        tx = Transaction(self._connection, is_careful=is_careful)
        answers = []
        for operation in operations:
            answers.append(_alone(tx, operation) if is_careful else (operation.run(tx), None))
            self._waiting_rows = tx.pending.size
        tx.finish()
        self._connection.execute(SQL["commit"])
        return answers, tx.may_be_claimable or tx.writing.has_made_available

    def _roll_back(self) -> None:
        # After some errors SQLite has rolled back by itself and says that nothing is open.
        with suppress(sqlite3.OperationalError):
            self._connection.execute(SQL["rollback"])

    # --- what others commit -----------------------------------------------------------------------

    def _look_around(self) -> None:
        """Our own commits do not change the number, those of every other connection do."""
        if not self._is_watched:
            return
        # Whatever is wrong with the file, the next transaction will say it to those concerned.
        with suppress(sqlite3.Error, StoreError), self._pen:
            found = self._data_version()
            if found != self._seen_version:
                self._seen_version = found
                self._sleep.see()
                self._on_change()

    def _data_version(self) -> int:
        return int(self._connection.execute(SQL["data_version"]).fetchone()[0])


def _coded(error: StoreError | OSError) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return StoreUnavailable(f"The turn to write cannot be taken: {error}", errno=error.errno)


def _alone(tx: Transaction, operation: Operation | Waited) -> Answer:
    """In a careful transaction an operation that fails harms itself only."""
    tx.execute("save_operation")
    try:
        answer = operation.run(tx)
        tx.finish()
    except Exception as error:
        if is_ours(error):
            raise
        tx.pending.forget()
        tx.execute("undo_operation")
        return None, error
    tx.execute("release_operation")
    return answer, None
