"""A worker that is a process: the whole of its session, from the first moment to the last."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

from detent.errors import ChannelBroken, ProcessError
from detent.host import (
    kill_session,
    members,
    name_of,
    signal_member,
    signal_session,
    state_of,
)
from detent.lifecycle.worker import Ending, Exit
from detent.runtime.process.channel import Channel
from detent.runtime.process.conversation import Conversation
from detent.runtime.process.faults import spawn_fault
from detent.runtime.process.frames import Message
from detent.runtime.process.keeper import Keeper, Launched
from detent.runtime.process.keeper import keeper as default_keeper
from detent.runtime.process.launching import Program, launch, passed, wired
from detent.runtime.process.leader import Leader
from detent.runtime.process.measuring import MemoryKills, usage
from detent.runtime.process.output import Drain, Output
from detent.runtime.process.rotation import Files
from detent.runtime.process.wiring import Dumps
from detent.runtime.supervisor.body import Born, Handover, Usage

_PAUSE_S: Final = 0.005
_PAUSE_MAX_S: Final = 0.1


class ProcessBody:
    """One process and everything it starts, in a session of its own."""

    kind: Final = "process"

    def __init__(
        self,
        program: Program,
        *,
        files: Files | None = None,
        on_message: Callable[[Message], None] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.output = Output(files)
        self.survivors: dict[int, str] = {}
        self._program = program
        self._on_message = on_message
        self._keeper = keeper or default_keeper()
        self._leader: Leader | None = None
        self._talk: Conversation | None = None
        self._dumps: Dumps | None = None
        self._drains: list[Drain] = []
        self._end: asyncio.Future[Exit] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_forced = False
        self._born_at = 0.0

    @property
    def suspendable(self) -> bool:
        """Whether it can go quiet and come back."""
        return self._program.suspendable or self._program.freezes

    @property
    def waits(self) -> bool:
        """Whether it says that it waits for others before it can be ready."""
        return self._talk is not None and self._talk.waits

    @property
    def fault(self) -> ChannelBroken | None:
        """What was wrong with its channel, if anything was."""
        return None if self._talk is None else self._talk.fault

    async def spawn(self, handover: Handover) -> Born:
        """Start it; it exists, and runs its command, when this returns."""
        self._end = asyncio.get_running_loop().create_future()
        try:
            launched = await self._launch(handover)
        except BaseException as error:
            self._end.set_result(Exit(Ending.UNSPAWNED, code=getattr(error, "code", None)))
            raise
        self._leader = leader = launched.leader
        self._born_at = time.monotonic()
        self._watch = asyncio.create_task(self._see_to_the_end(leader), name="detent-watch")
        try:
            await self._pass(launched.gate)
        except asyncio.CancelledError:
            await self.force()
            raise
        return Born(leader.pid, leader.process_at)

    async def ready(self) -> None:
        """Return when it has said so, or has lived long enough; never if it ends first."""
        talk, uptime = self._spoken(), self._program.min_uptime_s
        limit = None if uptime is None else max(0.0, self._born_at + uptime - time.monotonic())
        try:
            await asyncio.wait_for(talk.ready(), limit)
        except TimeoutError:
            if self._has_ended():
                await asyncio.Event().wait()

    async def ended(self) -> Exit:
        """How it ended, once its whole session is gone."""
        return await asyncio.shield(self._future())

    async def ask(self, grace_s: float) -> None:
        """Tell it on the channel how long it has, and signal it; wake whatever is stopped."""
        leader = self._alive()
        if leader is not None:
            self._spoken().say({"kind": "stop", "grace_s": grace_s})
            signal_member(leader.pid, leader.pid, self._program.stop_signal)
            signal_session(leader.pid, signal.SIGCONT)

    async def hasten(self, grace_s: float) -> None:
        """Tell it on the channel that it has less time."""
        if self._alive() is not None:
            self._spoken().say({"kind": "hasten", "grace_s": grace_s})

    async def dump(self) -> str:
        """The stacks of its threads; only a child that has joined its channel can write them."""
        leader, dumps = self._alive(), self._dumps
        if leader is None or dumps is None or not self._spoken().dumps:
            return ""
        return await dumps.take(lambda: signal_member(leader.pid, leader.pid, signal.SIGUSR1))

    async def force(self) -> None:
        """Kill all of its session."""
        leader = self._alive()
        if leader is not None:
            self._is_forced = True
            kill_session(leader.pid, leader.process_at)

    async def suspend(self) -> None:
        """Ask it to go quiet, and wait until it says that it is; or stop it where it stands."""
        if self._program.freezes:
            await self._freeze()
        else:
            await self._spoken().ask("suspend", "quiet")

    async def resume(self) -> None:
        """Let it go on, and wait until it says that it does."""
        leader = self._alive()
        if self._program.freezes and leader is not None:
            signal_session(leader.pid, signal.SIGCONT)
        elif leader is not None:
            await self._spoken().ask("resume", "awake")

    async def probe(self) -> bool:
        """Whether it answers on its channel; one that never joined can only be seen to live."""
        talk = self._talk
        if talk is None or self._alive() is None:
            return False
        if not talk.has_joined:
            return talk.is_open
        try:
            answer = await talk.ask("ping", "well")
        except ChannelBroken:
            return False
        return answer.get("well", True) is True

    def usage(self) -> Usage | None:
        """What its whole session uses, and how much it says it has done."""
        leader = self._alive()
        if leader is None:
            return None
        rss, cpu = usage(leader.pid)
        return Usage(rss, cpu, self._spoken().done)

    def tail(self, lines: int) -> list[str]:
        """The last lines it wrote."""
        return self.output.tail(lines)

    def tell(self, message: Message) -> None:
        """Send it a message of another kind."""
        if self._talk is not None:
            self._talk.say(message)

    # --- the beginning ------------------------------------------------------------------------

    async def _launch(self, handover: Handover) -> Launched:
        with contextlib.closing(wired(self._program)) as wiring:
            channel = await Channel.over(wiring.channel)
            try:
                launched = await launch(self._program, handover, wiring, self._keeper)
            except BaseException:
                channel.close()
                raise
            wiring.taken()
        self._talk = Conversation(channel, self._on_message)
        self._dumps = Dumps(wiring.dump)
        self._drains = [
            Drain(wiring.stdout, "stdout", self.output),
            Drain(wiring.stderr, "stderr", self.output),
        ]
        return launched

    async def _pass(self, gate: socket.socket) -> None:
        fault = await passed(gate)
        if fault is not None:
            await self.ended()
            raise spawn_fault(*fault, self._program.command)

    # --- the end --------------------------------------------------------------------------------

    async def _see_to_the_end(self, leader: Leader) -> None:
        end = self._future()
        try:
            kills = MemoryKills(leader.pid)
            await leader.exited()
            await self._empty_session(leader)
            end.set_result(await self._close(leader, kills))
        except BaseException as error:
            # Nobody may wait for ever for an end that we cannot see any more.
            if isinstance(error, asyncio.CancelledError):
                end.cancel()
            elif not end.done():
                end.set_exception(error)
            raise

    async def _empty_session(self, leader: Leader) -> None:
        """Whatever outlived its leader is killed, again and again until nothing is left."""
        pause = _PAUSE_S
        while left := members(leader.pid):
            if not self._is_forced:
                self.survivors.update((pid, name_of(pid)) for pid in left)
            kill_session(leader.pid, leader.process_at)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)

    async def _close(self, leader: Leader, kills: MemoryKills) -> Exit:
        is_oom = kills.happened()
        code = await asyncio.wrap_future(self._keeper.forget(leader))
        await self._spoken().close()
        for drain in self._drains:
            drain.close()
        self.output.finish()
        if self._dumps is not None:
            self._dumps.close()
        is_kill = code == -signal.SIGKILL
        is_forced = is_kill and self._is_forced
        return Exit.of_process(
            code, is_forced=is_forced, is_oom=is_kill and is_oom and not is_forced
        )

    async def _freeze(self) -> None:
        leader = self._alive()
        while leader is not None:
            signal_session(leader.pid, signal.SIGSTOP)
            if all(state_of(pid) in ("T", "t", "Z", None) for pid in members(leader.pid)):
                return
            await asyncio.sleep(_PAUSE_S)

    # --- what is there ---------------------------------------------------------------------------

    def _alive(self) -> Leader | None:
        leader = self._leader
        return None if leader is None or self._has_ended() else leader

    def _has_ended(self) -> bool:
        is_over = self._end is not None and self._end.done()
        return is_over or self._leader is None or self._leader.has_exited()

    def _spoken(self) -> Conversation:
        if self._talk is None:
            raise ProcessError("It was not started yet: call spawn first")
        return self._talk

    def _future(self) -> asyncio.Future[Exit]:
        if self._end is None:
            raise ProcessError("It was not started yet: call spawn first")
        return self._end
