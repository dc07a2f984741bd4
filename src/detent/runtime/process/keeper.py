"""The one permanent thread of a supervisor process: it starts children and keeps the guardian.

Linux kills a child when the *thread* that started it ends, so every child is started from a thread
that does not. The same thread keeps the guardian informed, and replaces it when it dies, whatever
the event loops of the process are doing.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from detent.errors import ForkFailed
from detent.host import start_time
from detent.runtime.process.faults import spawn_fault
from detent.runtime.process.leader import Leader
from detent.runtime.process.orphans import Orphans

T = TypeVar("T")

_HERE: Final = Path(__file__).parent
_BARE: Final = ("-I", "-S")
_GUARDIAN_SECONDS: Final = 30
_SWEEP_SECONDS: Final = 1.0
_CHUNK: Final = 4096


class Launch(msgspec.Struct, frozen=True):
    """What to start, and with what."""

    command: tuple[str, ...]
    environment: dict[str, str]
    files: tuple[int, ...]
    """Open files that the child inherits under their numbers."""
    output: tuple[int, int]
    """Where its standard output and its standard error go."""
    cwd: str | None = None
    nice: int = 0
    memory_bytes: int | None = None


class Launched(msgspec.Struct, frozen=True):
    """A child that exists. The gate says whether it became its command: see the launcher."""

    leader: Leader
    gate: socket.socket


class Keeper:
    """The thread, the guardian, and the sessions that both know."""

    def __init__(self) -> None:
        self.orphans = Orphans()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._sessions: dict[int, int] = {}
        self._guardian: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, name="detent-keeper", daemon=True)
        self._thread.start()

    @property
    def guardian_pid(self) -> int | None:
        """The process that clears up after us."""
        return None if self._guardian is None else self._guardian.pid

    def launch(self, launch: Launch) -> Future[Launched]:
        """Start a child in a session of its own; it waits at its gate until it is guarded."""
        return self._submit(lambda: self._launch(launch))

    def forget(self, leader: Leader) -> Future[int]:
        """Reap a leader whose session is empty, and tell its exit code."""
        return self._submit(lambda: self._forget(leader))

    def close(self) -> None:
        """End the thread, and so whatever it has started."""
        self._calls.put(None)
        self._ring.send(b"!")
        self._thread.join()
        self._bell.close()
        self._ring.close()

    def abandon(self) -> None:
        """After a fork without exec: the thread stayed behind, and the pipe is the parent's."""
        self._bell.close()
        self._ring.close()
        if self._guardian is not None:
            for end in (self._guardian.stdin, self._guardian.stdout):
                if end is not None:
                    end.close()
            self._guardian.returncode = 0  # It is the parent's child, not ours.

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()

        def call() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)

        self._calls.put(call)
        self._ring.send(b"!")
        return answer

    def _work(self) -> None:
        is_open = True
        while is_open:
            ends = self._guardian_ends()
            is_bare = bool(self._sessions) and self._guardian is None
            pause = _SWEEP_SECONDS if self.orphans.adopts or is_bare else None
            readable = _readable([self._bell.fileno(), *ends], pause)
            if self._bell.fileno() in readable:
                self._bell.recv(_CHUNK)
            if is_bare or readable.intersection(ends):
                self._replace_guardian()
            is_open = self._answer_calls()
            if not readable:
                self.orphans.sweep(self._own_pids())
        self._release_guardian()

    def _answer_calls(self) -> bool:
        while not self._calls.empty():
            call = self._calls.get()
            if call is None:
                return False
            call()
        return True

    def _own_pids(self) -> set[int]:
        own = set(self._sessions)
        if self._guardian is not None:
            own.add(self._guardian.pid)
        return own

    # --- children -----------------------------------------------------------------------------

    def _launch(self, launch: Launch) -> Launched:
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                leader = self._start_guarded(launch, ours, theirs)
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None)
            raise spawn_fault(number, str(error), launch.command) from error
        ours.send(b"g")
        ours.setblocking(False)
        return Launched(leader, ours)

    def _start_guarded(self, launch: Launch, ours: socket.socket, theirs: socket.socket) -> Leader:
        try:
            self._ensure_guardian()
            leader = self._start(launch, theirs)
        except BaseException:
            ours.close()
            raise
        self._sessions[leader.pid] = leader.process_at
        self._tell(f"+{leader.pid} {leader.process_at}\n")
        return leader

    def _start(self, launch: Launch, gate: socket.socket) -> Leader:
        memory = "" if launch.memory_bytes is None else str(launch.memory_bytes)
        plan = (str(gate.fileno()), str(os.getpid()), memory, str(launch.nice), launch.cwd or "")
        child = subprocess.Popen(  # noqa: S603 (starting commands is what this is for)
            [sys.executable, *_BARE, str(_HERE / "launcher.py"), *plan, *launch.command],
            stdin=subprocess.DEVNULL,
            stdout=launch.output[0],
            stderr=launch.output[1],
            env=launch.environment,
            pass_fds=(gate.fileno(), *launch.files),
            start_new_session=True,
        )
        child.returncode = 0  # It is reaped by its leader, and never through this object.
        try:
            return Leader(child.pid, start_time(child.pid) or 0)
        except OSError:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            raise

    def _forget(self, leader: Leader) -> int:
        if self._sessions.pop(leader.pid, None) is not None:
            self._tell(f"-{leader.pid}\n")
        return leader.reap()

    # --- the guardian ---------------------------------------------------------------------------

    def _guardian_ends(self) -> list[int]:
        if self._guardian is None or self._guardian.stdout is None:
            return []
        return [self._guardian.stdout.fileno()]

    def _ensure_guardian(self) -> None:
        if self._guardian is not None and self._guardian.poll() is not None:
            self._dismiss_guardian()
        if self._guardian is None:
            self._guardian = _start_guardian(self._sessions)

    def _replace_guardian(self) -> None:
        """Its end of the pipe was closed: it is dead. If no other can be started now, it is tried
        again every second, and no child is started until one is there."""
        self._dismiss_guardian()
        try:
            self._ensure_guardian()
        except (OSError, ForkFailed):
            return

    def _tell(self, line: str) -> None:
        guardian = self._guardian
        if guardian is None or guardian.stdin is None:
            return
        try:
            os.write(guardian.stdin.fileno(), line.encode())
        except OSError:
            # Dead, or so stuck that its pipe is full: another one is told everything.
            self._replace_guardian()

    def _release_guardian(self) -> None:
        """Let it do its duty: at the end of its pipe it clears up, and ends."""
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            _readable(self._guardian_ends(), _GUARDIAN_SECONDS)
        self._dismiss_guardian()

    def _dismiss_guardian(self) -> None:
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            with guardian:
                guardian.kill()


def _start_guardian(sessions: Mapping[int, int]) -> subprocess.Popen[bytes]:
    """It finds what it has to know in its pipe, even if we do not live until it reads it."""
    guardian = subprocess.Popen(  # noqa: S603 (our own file, by our own interpreter)
        [sys.executable, *_BARE, str(_HERE / "guardian.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )
    assert guardian.stdin is not None  # noqa: S101 (both are pipes)
    assert guardian.stdout is not None  # noqa: S101
    known = "".join(f"+{session} {at}\n" for session, at in sessions.items())
    with contextlib.suppress(BrokenPipeError):
        os.write(guardian.stdin.fileno(), known.encode())
    os.set_blocking(guardian.stdin.fileno(), False)
    readable = _readable([guardian.stdout.fileno()], _GUARDIAN_SECONDS)
    if not readable or not os.read(guardian.stdout.fileno(), 64):
        with guardian:
            guardian.kill()
        raise ForkFailed("The guardian, without which no worker is started, did not come up")
    return guardian


def _readable(files: Iterable[int], seconds: float | None) -> set[int]:
    """Which of them have something to read, or have ended; however high their numbers are."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(None if seconds is None else seconds * 1000)}


_KEEPERS: list[Keeper] = []
_LOCK = threading.Lock()


def keeper() -> Keeper:
    """The keeper of this process, started when first needed."""
    with _LOCK:
        if not _KEEPERS:
            _KEEPERS.append(Keeper())
        return _KEEPERS[0]


def _forget_all() -> None:
    while _KEEPERS:
        _KEEPERS.pop().abandon()


os.register_at_fork(after_in_child=_forget_all)
