"""One pool process, seen from its worker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Final

import msgspec

from detent.errors import DetentError, PoolBroken
from detent.runtime.executors.api import Died, Ended, Run, Rung, Stopped
from detent.runtime.executors.pipes import Pipe, Voice
from detent.runtime.executors.pool.messages import (
    FRAME_BYTES_MAX,
    Broken,
    End,
    Halt,
    Leave,
    Order,
    Ready,
    Word,
    error_of,
    plain,
    word_of,
)
from detent.runtime.executors.pool.outlet import DUMP_SIGNAL
from detent.runtime.executors.relaying import begin_of, ended_of, relay
from detent.runtime.process.faults import spawn_fault
from detent.runtime.process.frames import Frames, frame
from detent.runtime.process.leader import Leader

START_S: Final = 60.0
"""How long the program of the user may take to be imported."""
LEAVE_S: Final = 2.0
"""How long a process that is not needed any more may take to end."""
_DUMP_S: Final = 1.0
_QUIET_S: Final = 0.1
"""A process writes its stacks piece by piece, and may have to wait for a turn in between."""
_LAST_WORDS_S: Final = 1.0
_CHUNK: Final = 65_536
_DUMP_BYTES_MAX: Final = 65_536
_TAIL_CHARS_MAX: Final = 16_384
_OUT_OF_MEMORY: Final = ("MemoryError", "bad_alloc", "annot allocate memory")


class Pooled:
    """A process in a group of its own, so that it can be killed with all that it has started.

    It begins in `home`: by then a thread may have taken its worker elsewhere, where no program is.
    """

    def __init__(self, home: str | None = None) -> None:
        self.jobs = 0
        self._home = home
        self.rss_bytes = 0
        self.born = time.monotonic()
        self._run: Run | None = None
        self._is_killed = False
        self._is_interrupted = False
        self._is_garbled = False
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._end: asyncio.Future[End] = loop.create_future()
        self._gone: asyncio.Future[int] = loop.create_future()
        self._dump = bytearray()
        self._voices = (Voice("stdout", _to_stdout), Voice("stderr", _to_stderr))
        self._pipes = [Pipe(voice.hear) for voice in self._voices]
        self._dumps = Pipe(self._hear_dump)
        self._lifeline = os.pipe()
        self._reading: asyncio.Future[None] = loop.create_future()
        self._reading.set_result(None)

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self._gone.done()

    async def start(self, reference: str) -> None:
        """Start it and wait until it has imported the program; an error says why it has not."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "detent.app.pool", reference, str(theirs.fileno())]
        try:
            self._process = self._spawned(command, theirs.fileno())
        except OSError as error:
            ours.close()
            self._close_pipes()
            self._gone.set_result(0)
            raise spawn_fault(error.errno, str(error), command) from error
        finally:
            theirs.close()
            os.close(self._lifeline[0])
            for pipe in (*self._pipes, self._dumps):
                pipe.hand_over()
        self._watching = asyncio.create_task(self._watch(Leader(self.pid, 0)))
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._reading = asyncio.create_task(self._read())
        await self._started(reference)

    async def run(self, run: Run, memory: int | None = None) -> Ended:
        """Run one job in it; one that says nothing about memory may add that much."""
        self.jobs += 1
        self._run, self._is_interrupted = run, False
        self._end = asyncio.get_running_loop().create_future()
        for voice in self._voices:
            voice.begin(run.ctx)
        try:
            run.begun()
            self._send(begin_of(run, memory))
            if run.ctx.cancelled:
                self.halt()
            await self._first_of(self._end)
            if not self._end.done():
                await asyncio.wait([self._reading], timeout=_LAST_WORDS_S)
            return self._ended(run)
        finally:
            self._run = None

    def halt(self) -> None:
        """Tell the run that it should stop."""
        self._send(Halt())

    def interrupt(self) -> None:
        """Raise something in the handler."""
        self._is_interrupted = True
        self._signal(signal.SIGINT)

    async def kill(self) -> None:
        """End it and all that it has started; its stacks go to the log of the run first."""
        run = self._run
        stacks = await self._stacks() if run is not None else ""
        if run is not None and stacks:
            run.ctx.log(f"It is killed. What it was doing:\n{stacks}", "error")
        self._is_killed = True
        await self.force()

    async def force(self) -> None:
        """End it at once, and hang up."""
        self._signal(signal.SIGKILL)
        await asyncio.wait([self._gone])
        await self.hang_up()

    async def hang_up(self) -> None:
        """Hear its last words and close the channel, whoever else it has left there."""
        await asyncio.wait([self._reading], timeout=_LAST_WORDS_S)
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def leave(self) -> None:
        """Let it end as programs do, if it does so in time."""
        self._send(Leave())
        await asyncio.wait([self._gone], timeout=LEAVE_S)
        await self.force()

    def _spawned(self, command: list[str], channel: int) -> subprocess.Popen[bytes]:
        dump, lifeline = self._dumps.write, self._lifeline[0]
        return subprocess.Popen(  # noqa: S603 (our own interpreter)
            [*command, str(dump), str(lifeline)],
            stdin=subprocess.DEVNULL,
            stdout=self._pipes[0].write,
            stderr=self._pipes[1].write,
            pass_fds=(channel, dump, lifeline),
            cwd=self._home,
            process_group=0,
        )

    async def _started(self, reference: str) -> None:
        await self._first_of(self._ready, START_S)
        if not self._ready.done():
            await self._give_up(reference)
        self._ready.result()

    async def _give_up(self, reference: str) -> None:
        """It has ended, unless its last words say more than that; or it takes too long."""
        if not self.is_gone:
            why = f"{reference} was not imported within {START_S:g} s in a pool process"
            raise PoolBroken(why, reference=reference)
        await asyncio.wait([self._reading], timeout=_LAST_WORDS_S)
        if not self._ready.done():
            died = self._died()
            why = f"A pool process for {reference} could not begin: {died.reason}\n{died.tail}"
            raise PoolBroken(why, reference=reference, signal=died.signal, exit_code=died.code)

    async def _first_of(self, one: asyncio.Future[Any], timeout_s: float | None = None) -> None:
        """Wait for that, or for the end of the process."""
        ways = (one, self._gone)
        await asyncio.wait(ways, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    def _send(self, order: Order) -> None:
        if not self.is_gone:
            self._writer.write(frame(plain(order), FRAME_BYTES_MAX))

    async def _read(self) -> None:
        frames = Frames(FRAME_BYTES_MAX)
        try:
            while data := await self._reader.read(_CHUNK):
                for message in frames.feed(data):
                    await self._hear(word_of(message))
        except DetentError:
            # Somebody in there writes into our channel: nothing it says can be trusted any more.
            self._is_garbled = True
            self._signal(signal.SIGKILL)
        except OSError:
            pass
        finally:
            self._writer.close()

    async def _hear(self, word: Word) -> None:
        match word:
            case Ready():
                if not self._ready.done():
                    self._ready.set_result(None)
            case Broken():
                if not self._ready.done():
                    self._ready.set_exception(error_of(word.fault))
            case End():
                self.rss_bytes = word.rss_bytes
                if not self._end.done():
                    self._end.set_result(word)
            case _:
                if self._run is not None:
                    await relay(self._run, word, self._send)

    def _ended(self, run: Run) -> Ended:
        for pipe in self._pipes:
            pipe.drain()
        for voice in self._voices:
            voice.end()
        if self._end.done():
            end = self._end.result()
            run.ctx.heard.drop(end.dropped)
            return ended_of(end, is_ours=self._is_interrupted)
        if self._is_killed:
            return Stopped(Rung.KILLED)
        died = self._died()
        return msgspec.structs.replace(died, tail=run.ctx.heard.kept(died.tail, _TAIL_CHARS_MAX))

    def _died(self) -> Died:
        self._dumps.drain()
        code = self._gone.result() if self.is_gone else -signal.SIGKILL
        dump = self._dump.decode("utf-8", "backslashreplace")
        tail = "\n".join((*self._voices[1].tail, *dump.splitlines()))
        if code < 0:
            return Died(self._cause(tail, "signal"), signal=-code, tail=tail)
        return Died(self._cause(tail, "exit"), code=code, tail=tail)

    def _cause(self, tail: str, how: str) -> str:
        if self._is_garbled:
            return "garbled"
        return "memory" if any(word in tail for word in _OUT_OF_MEMORY) else how

    async def _stacks(self) -> str:
        """What all of its threads are doing, if it says so in time."""
        self._dump.clear()
        self._signal(DUMP_SIGNAL)
        until, before = time.monotonic() + _DUMP_S, 0
        while time.monotonic() < until and (not before or len(self._dump) > before):
            before = len(self._dump)
            await asyncio.sleep(_QUIET_S)
        return self._dump.decode("utf-8", "backslashreplace")

    def _hear_dump(self, data: bytes) -> None:
        self._dump += data[: _DUMP_BYTES_MAX - len(self._dump)]

    def _signal(self, number: int) -> None:
        """To the process, or if it is to be killed, to its whole group."""
        with suppress(ProcessLookupError):
            if not self.is_gone:
                (os.killpg if number == signal.SIGKILL else os.kill)(self.pid, number)

    async def _watch(self, leader: Leader) -> None:
        """See its end, end what it left behind, and only then let go of its number."""
        await leader.exited()
        self._signal(signal.SIGKILL)
        self._process.returncode = leader.reap()
        self._close_pipes()
        self._gone.set_result(self._process.returncode)

    def _close_pipes(self) -> None:
        os.close(self._lifeline[1])
        for pipe in (*self._pipes, self._dumps):
            pipe.close()


def _to_stdout(text: str) -> None:
    sys.stdout.write(text)


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
