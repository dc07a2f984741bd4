"""No process of ours outlives its supervisor, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.host import kill_session, start_time
from detent.runtime.process import guardian
from detent.runtime.process.keeper import Keeper
from tests.runtime.process.yard import (
    LIGHT,
    SRC,
    child,
    commands,
    is_gone,
    program,
    started,
)
from tests.waiting import eventually, until

FAMILY = """
import os, signal, subprocess, sys, time
deaf = "import signal, time; [signal.signal(n, 1) for n in (1, 2, 15)]; time.sleep(1000)"
children = [
    subprocess.Popen(["sleep", "1000"]),
    subprocess.Popen(["sleep", "1000"], process_group=0),
    subprocess.Popen([sys.executable, "-S", "-c", deaf]),
]
with open(sys.argv[1] + ".new", "w") as file:
    print(os.getpid(), *[child.pid for child in children], file=file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""

SUPERVISOR = f"""
import asyncio, os, sys
sys.path.insert(0, {str(Path(SRC).parent)!r})
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.keeper import keeper
from detent.runtime.process.launching import Program
from detent.runtime.supervisor.body import Handover

async def main():
    for number, path in enumerate(sys.argv[2:]):
        command = (sys.executable, "-S", "-c", sys.argv[1], path)
        body = ProcessBody(Program(command=command))
        await body.spawn(Handover(f"i-{{number}}", "slot", "r"))
    told = None
    while True:
        if keeper().guardian_pid not in (None, told):
            told = keeper().guardian_pid
            print(told, flush=True)
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


BUSY = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(SRC).parent)!r})
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.launching import Program
from detent.runtime.supervisor.body import Handover

async def again_and_again(number):
    code = "sleep $0 & (trap '' TERM HUP; sleep $0 & wait) & wait"
    while True:
        body = ProcessBody(Program(command=("sh", "-c", code, sys.argv[1])))
        print("starts", flush=True)
        await body.spawn(Handover(str(number), "slot", "r"))
        print("runs", flush=True)
        await body.force()
        print("forced", flush=True)
        await body.ended()

async def main():
    await asyncio.gather(*map(again_and_again, range(3)))

asyncio.run(main())
"""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, list[int]]]:
    """A supervisor process with two workers, its guardian, and all the pids below it."""
    places = [tmp_path / "one", tmp_path / "two"]
    words = (sys.executable, "-c", SUPERVISOR, FAMILY, *map(str, places))
    process = child(*words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        eventually(lambda: all(place.exists() for place in places))
        pids = [int(word) for place in places for word in place.read_text().split()]
        yield process, int(process.stdout.readline()), pids
        process.kill()
        process.wait()
        eventually(lambda: all(map(is_gone, pids)))


def test_nothing_survives_the_kill_of_its_supervisor(
    supervisor: tuple[subprocess.Popen[str], int, list[int]],
) -> None:
    """W-76."""
    process, guard, pids = supervisor
    assert len(pids) == 8
    assert not any(map(is_gone, pids))
    process.kill()
    eventually(lambda: all(map(is_gone, [*pids, guard])))


@pytest.mark.slow
@pytest.mark.parametrize("moment", [3, 8, 41])
def test_nothing_survives_a_kill_at_any_moment(moment: int) -> None:
    marker = f"1000.{os.getpid()}{moment}"
    process = child(sys.executable, "-c", BUSY, marker, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        for _ in range(moment):
            assert process.stdout.readline()
        process.kill()
        process.wait()
    eventually(lambda: not commands(marker))


def test_a_dead_guardian_is_replaced_and_told_everything(
    supervisor: tuple[subprocess.Popen[str], int, list[int]],
) -> None:
    process, guard, pids = supervisor
    os.kill(guard, signal.SIGKILL)
    assert process.stdout is not None
    second = int(process.stdout.readline())
    assert is_gone(guard)
    assert second != guard
    process.kill()
    eventually(lambda: all(map(is_gone, [*pids, second])))


def test_what_ends_others_does_not_end_the_guardian(
    supervisor: tuple[subprocess.Popen[str], int, list[int]],
) -> None:
    process, guard, pids = supervisor
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(guard, number)
    process.terminate()
    eventually(lambda: all(map(is_gone, [*pids, guard])))


def test_a_guardian_ends_only_the_sessions_that_it_was_told() -> None:
    told, untold, over = (child("sleep", "1000", start_new_session=True) for _ in range(3))
    lines = [f"+{one.pid} {start_time(one.pid)}\n" for one in (told, over)]
    lines += [f"-{over.pid}\n", "-4194304\n"]
    guardian.guard(lines, kill_session)
    assert told.wait() == -signal.SIGKILL
    for spared in (untold, over):
        assert spared.poll() is None
        spared.kill()
        spared.wait()


def test_a_guardian_works_on_what_it_finds_in_its_pipe() -> None:
    sleeper = child("sleep", "1000", start_new_session=True)
    guard = child(sys.executable, guardian.__file__, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said, _ = guard.communicate(f"+{sleeper.pid} {start_time(sleeper.pid)}\n")
    assert (said, guard.returncode) == ("listening\n", 0)
    assert sleeper.wait() == -signal.SIGKILL


def test_a_guardian_gives_up_on_what_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardian, "PATIENCE_S", 0.05)
    tries: list[int] = []

    def immortal(session: int, at: int) -> list[int]:
        tries.append(at)
        return [session]

    guardian.guard(["+5 7\n"], immortal)
    assert set(tries) == {7}


async def test_a_child_ends_its_session_when_its_channel_ends(keeper: Keeper) -> None:
    code = (
        LIGHT
        + """
Inside.join()
# In a group of its own, and deaf: only a look at the whole session finds it.
child = subprocess.Popen(["sh", "-c", "trap '' HUP TERM; sleep 1000"], process_group=0)
print(child.pid, flush=True)
time.sleep(1000)
"""
    )
    body = await started(keeper, program(code))
    await until(lambda: body.tail(1))
    child = int(body.tail(1)[0])
    talk = body._talk  # noqa: SLF001
    assert talk is not None
    await talk.close()
    assert (await body.ended()).number == signal.SIGKILL
    assert is_gone(child)
    assert body.survivors == {}, "it has cleared up itself"
