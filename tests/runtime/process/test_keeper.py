"""The permanent thread, and what it keeps."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from detent.errors import ForkFailed
from detent.host import start_time, state_of
from detent.runtime.process import keeper as keeping
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.keeper import Keeper, Launch, Launched
from detent.runtime.process.launching import Program
from detent.runtime.process.leader import Leader
from detent.runtime.process.orphans import Orphans
from tests.runtime.process.yard import HANDOVER, child, is_gone, say, started
from tests.waiting import until

SLEEP = Program(command=("sleep", "1000"))


async def test_a_child_outlives_the_thread_that_asked_for_it(keeper: Keeper) -> None:
    """W-77."""
    bodies = []

    def short_lived() -> None:
        async def start() -> int:
            body = await started(keeper, SLEEP)
            leader = body._leader  # noqa: SLF001
            assert leader is not None
            await _unwatched(body)
            return leader.pid

        bodies.append(asyncio.run(start()))

    thread = threading.Thread(target=short_lived)
    thread.start()
    thread.join()
    [pid] = bodies
    # A parent-death signal tied to that thread would have come before anything that we ask now.
    other = await started(keeper, SLEEP)
    await other.ask(1)
    await other.ended()
    assert not is_gone(pid)
    os.kill(pid, signal.SIGKILL)
    leader = Leader(pid, start_time(pid) or 0)
    await leader.exited()
    assert await asyncio.wrap_future(keeper.forget(leader)) == -signal.SIGKILL


class Slow(Keeper):
    """Takes its time before it starts anything, and knows which files it then hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.asked: list[list[int]] = []
        self.handed: list[list[int]] = []

    def launch(self, launch: Launch) -> Future[Launched]:
        self.asked.append(_inodes(launch))
        return super().launch(launch)

    def _start(self, launch: Launch, gate: socket.socket) -> Leader:
        self.begun.set()
        self.go_on.wait()
        self.handed.append(_inodes(launch))
        return super()._start(launch, gate)


def _inodes(launch: Launch) -> list[int]:
    return [os.fstat(number).st_ino for number in (*launch.files, *launch.output)]


async def test_a_start_that_is_called_off_never_hands_on_the_files_of_others() -> None:
    """W-77: one that has begun keeps its files until it is over; one that waits does not begin."""
    keeper = Slow()
    spawning = [
        asyncio.create_task(ProcessBody(SLEEP, keeper=keeper).spawn(HANDOVER)) for _ in range(2)
    ]
    await until(lambda: keeper.begun.is_set() and len(keeper.asked) == 2)
    for task in spawning:
        task.cancel()
    await asyncio.gather(*spawning, return_exceptions=True)
    others = [os.pipe() for _ in range(10)]
    keeper.go_on.set()
    await started(keeper, SLEEP)
    assert keeper.handed == [keeper.asked[0], keeper.asked[2]]
    for number in [number for pair in others for number in pair]:
        os.close(number)
    keeper.close()


async def test_the_end_of_the_keeper_is_the_end_of_its_children() -> None:
    keeper = Keeper()
    body = await started(keeper, SLEEP)
    leader = body._leader  # noqa: SLF001
    assert leader is not None
    guardian = keeper.guardian_pid
    assert guardian is not None
    await _unwatched(body)
    keeper.close()
    assert state_of(leader.pid) in ("Z", None)
    assert state_of(guardian) is None
    assert leader.reap() == -signal.SIGKILL


async def _unwatched(body: ProcessBody) -> None:
    """From now on nobody sees to its end."""
    watch, talk = body._watch, body._talk  # noqa: SLF001
    assert watch is not None
    assert talk is not None
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    await talk.close()


async def test_a_stuck_guardian_is_replaced(keeper: Keeper) -> None:
    await (await started(keeper, Program(command=("true",)))).ended()
    stuck = keeper.guardian_pid
    assert stuck is not None
    os.kill(stuck, signal.SIGSTOP)
    line = "+1 1" + " " * 4000 + "\n"
    for _ in range(100):
        keeper._submit(lambda: keeper._tell(line)).result()  # noqa: SLF001
    assert keeper.guardian_pid != stuck
    assert is_gone(stuck)
    keeper._submit(lambda: keeper._tell("-1\n")).result()  # noqa: SLF001


async def test_a_guardian_that_cannot_be_replaced_at_once_is_replaced_later(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = await started(keeper, SLEEP)
    first = keeper.guardian_pid
    assert first is not None
    (tmp_path / "guardian.py").write_text("raise SystemExit(1)")
    with monkeypatch.context() as patch:
        patch.setattr(keeping, "_HERE", tmp_path)
        os.kill(first, signal.SIGKILL)
        await until(lambda: keeper.guardian_pid is None)
    await until(lambda: keeper.guardian_pid is not None)
    assert keeper.guardian_pid != first
    await body.force()
    await body.ended()


async def test_without_a_guardian_no_worker_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guardian.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(keeping, "_HERE", tmp_path)
    keeper = Keeper()
    try:
        with pytest.raises(ForkFailed):
            await started(keeper, SLEEP)
    finally:
        keeper.close()


@pytest.mark.parametrize("has_handle", [True, False])
async def test_an_end_is_seen_with_and_without_handles(has_handle: bool) -> None:
    one = child("sh", "-c", "read x; exit 3", stdin=subprocess.PIPE)
    leader = Leader(one.pid, start_time(one.pid) or 0, has_handle=has_handle)
    watch = asyncio.create_task(leader.exited())
    await asyncio.sleep(0)
    assert not leader.has_exited()
    assert one.stdin is not None
    one.stdin.close()
    await watch
    assert leader.has_exited()
    assert leader.reap() == leader.reap() == 3
    assert leader.has_exited()
    one.returncode = 3


def test_a_child_that_somebody_else_has_reaped_has_an_unknown_end() -> None:
    one = child("true")
    leader = Leader(one.pid, 0)
    one.wait()
    assert leader.has_exited()
    assert leader.reap() == 255


def test_orphans_are_reaped_at_the_second_look() -> None:
    """W-79."""
    code = """
import os, subprocess, sys, threading
from detent.host import children, state_of
from detent.runtime.process.orphans import Orphans
orphans = Orphans()
assert orphans.sweep(()) == [] and orphans.adopt()
parent = subprocess.Popen(["sh", "-c", "sleep 0.05 & echo $!"], stdout=subprocess.PIPE, text=True)
orphan = int(parent.communicate()[0])
known = subprocess.Popen(["true"])
while {state_of(orphan), state_of(known.pid)} != {"Z"}: threading.Event().wait(0.01)
print(orphan in children(os.getpid()), orphans.sweep([known.pid]))
print(orphans.sweep([known.pid]) == [orphan], state_of(orphan), known.wait())
"""
    assert say(code) == ["True []", "True None 0"]


def test_the_keeper_sweeps_by_itself() -> None:
    code = """
import subprocess, threading
from detent.host import state_of
from detent.runtime.process.keeper import keeper
assert keeper() is keeper() and keeper().orphans.adopt()
keeper()._submit(lambda: None).result()
parent = subprocess.Popen(["sh", "-c", "sleep 0.05 & echo $!"], stdout=subprocess.PIPE, text=True)
orphan = int(parent.communicate()[0])
while state_of(orphan) is not None: threading.Event().wait(0.01)
"""
    assert say(code) == []


def test_a_fork_without_exec_lets_go_of_the_guardian() -> None:
    code = """
import asyncio, os, sys
from detent.runtime.process.keeper import keeper
from tests.runtime.process.yard import HANDOVER, started
from detent.runtime.process.launching import Program
asyncio.run((lambda: started(keeper(), Program(command=("true",))))())
first = keeper()
if os.fork() == 0:
    os._exit(0 if keeper() is not first else 1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert say(code) == ["0"]


def test_process_one_adopts_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Orphans().adopts
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert Orphans().adopts


def test_a_launcher_whose_parent_is_another_does_not_begin() -> None:
    script = Path(keeping.__file__).with_name("launcher.py")
    read, write = os.pipe()
    os.write(write, b"g")
    words = (str(read), "1", "", "0", "", "touch", "never")
    one = child(sys.executable, "-I", "-S", str(script), *words, pass_fds=[read])
    assert one.wait() == 1
    os.close(read)
    os.close(write)
    assert not Path("never").exists()
