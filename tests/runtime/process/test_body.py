"""One worker process, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
import statistics
import threading
from pathlib import Path

import pytest

from detent.errors import (
    CommandNotFound,
    CommandRefused,
    ProcessError,
    TooManyFiles,
)
from detent.host import is_alive, members, state_of
from detent.lifecycle.worker import Ending, Exit
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.frames import Message
from detent.runtime.process.keeper import Keeper
from detent.runtime.process.launching import Program
from detent.runtime.supervisor.body import Handover
from tests.runtime.process.yard import (
    HANDOVER,
    LIGHT,
    WORKER,
    commands,
    is_gone,
    program,
    started,
)
from tests.waiting import until

SLEEP = Program(command=("sleep", "1000"))
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True: time.sleep(1000)
"""


async def end(body: ProcessBody) -> Exit:
    """Kill it and wait."""
    await body.force()
    return await body.ended()


async def test_it_exists_when_it_was_spawned(keeper: Keeper) -> None:
    body = ProcessBody(SLEEP, keeper=keeper)
    born = await body.spawn(HANDOVER)
    assert is_alive(born.pid, born.process_at)
    assert os.getsid(born.pid) == born.pid, "a session of its own"
    assert (body.kind, body.suspendable) == ("process", True)
    assert await end(body) == Exit.of_process(-signal.SIGKILL, is_forced=True)
    assert not is_alive(born.pid, born.process_at)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", Exit(Ending.EXITED, 0)),
        ("raise SystemExit(3)", Exit(Ending.EXITED, 3)),
        ("import os; os.kill(os.getpid(), 9)", Exit(Ending.SIGNALLED, 9)),
        ("import os; os.kill(os.getpid(), 11)", Exit(Ending.SIGNALLED, 11)),
    ],
)
async def test_the_end_is_what_was_seen(keeper: Keeper, code: str, expected: Exit) -> None:
    body = await started(keeper, program(code))
    readers = await asyncio.gather(body.ended(), body.ended())
    assert list(readers) == [expected, expected]
    assert await body.ended() == expected, "also afterwards"
    # Whoever comes too late is not an error, and hits nobody.
    await body.ask(1)
    await body.hasten(1)
    await body.force()
    await body.resume()
    assert (await body.dump(), await body.probe(), body.usage()) == ("", False, None)
    assert await body.ended() == expected


async def test_the_handover_reaches_a_real_process(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-73, W-75."""
    monkeypatch.setenv("LIFECYCLE_PREV_EXIT", "77")
    monkeypatch.setenv("INHERITED", "yes")
    code = """
import os
for name in sorted(os.environ):
    if name.startswith("LIFECYCLE_") or name in ("OWN", "INHERITED"): print(name, os.environ[name])
"""
    first = await started(keeper, program(code, environment={"OWN": "1"}))
    await first.ended()
    assert first.tail(99) == [
        "INHERITED yes",
        "LIFECYCLE_ATTEMPT 1",
        "LIFECYCLE_INSTANCE_ID i-1",
        "LIFECYCLE_RESUME_ID r-1",
        "LIFECYCLE_SLOT slot",
        "OWN 1",
    ]
    second = ProcessBody(program(code), keeper=keeper)
    await second.spawn(Handover("i-2", "slot", "r-1", 2, -9, "Failed", "sigkill_external"))
    await second.ended()
    said = second.tail(99)
    assert "LIFECYCLE_PREV_EXIT -9" in said
    assert "LIFECYCLE_PREV_CAUSE sigkill_external" in said


async def test_what_cannot_be_started_says_why(keeper: Keeper, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    empty = tmp_path / "empty"
    empty.write_bytes(b"\x00\x01")
    empty.chmod(0o755)
    cases: list[tuple[Program, type[ProcessError]]] = [
        (Program(command=("there-is-no-such-program",)), CommandNotFound),
        (Program(command=(str(plain),)), CommandRefused),
        (Program(command=(str(empty),)), CommandRefused),
        (Program(command=("true",), cwd=str(tmp_path / "none")), CommandNotFound),
        (Program(command=("true", "x" * 3_000_000)), CommandRefused),
        (Program(command=("true", "\0")), ProcessError),
    ]
    for broken, expected in cases:
        body = ProcessBody(broken, keeper=keeper)
        with pytest.raises(expected) as caught:
            await body.spawn(HANDOVER)
        assert type(caught.value) is expected
        assert caught.value.fields["command"] == broken.command[0]
        assert (await body.ended()).how in (Ending.UNSPAWNED, Ending.EXITED)


async def test_no_room_for_open_files_is_said_too(keeper: Keeper) -> None:
    await end(await started(keeper, SLEEP))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = _take_all_files(hard)
    refused = 0
    try:
        # However few are left: either it is started, or that is the error, and no other.
        while taken:
            try:
                await end(await started(keeper, SLEEP))
            except TooManyFiles:
                refused += 1
                os.close(taken.pop())
            else:
                break
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in taken:
            os.close(file)
    assert 5 < refused < 20
    await end(await started(keeper, SLEEP))


def _take_all_files(hard: int) -> list[int]:
    used = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    taken: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    return taken


async def test_a_body_that_was_not_spawned_has_no_end(keeper: Keeper) -> None:
    body = ProcessBody(SLEEP, keeper=keeper)
    with pytest.raises(ProcessError):
        await body.ended()
    with pytest.raises(ProcessError):
        await body.suspend()
    await body.force()
    body.tell({"kind": "lapse"})
    assert not await body.probe()


async def test_a_spawn_that_nobody_waits_for_leaves_nothing(keeper: Keeper) -> None:
    marker = f"1000.{os.getpid()}"
    asleep = Program(command=("sleep", marker))
    for moments in range(10):
        body = ProcessBody(asleep, keeper=keeper)
        task = asyncio.create_task(body.spawn(HANDOVER))
        for _ in range(moments):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    late = ProcessBody(asleep, keeper=keeper)
    task = asyncio.create_task(late.spawn(HANDOVER))
    await until(lambda: late._leader)  # noqa: SLF001
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await late.ended()).number == signal.SIGKILL
    body = await started(keeper, SLEEP)
    await until(lambda: not commands(marker))
    await end(body)


async def test_readiness_is_its_own_word_or_a_time(keeper: Keeper) -> None:
    by_word = await started(keeper, program(WORKER, min_uptime_s=None))
    await by_word.ready()
    assert by_word.usage() is not None
    by_time = await started(keeper, Program(command=("sleep", "1000"), min_uptime_s=0.05))
    await by_time.ready()
    silent = await started(keeper, Program(command=("sleep", "1000"), min_uptime_s=None))
    short = await started(keeper, Program(command=("true",), min_uptime_s=0.05))
    await short.ended()
    for never in (silent, short):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(never.ready(), 0.2)
    for body in (by_word, by_time, silent):
        await end(body)


async def test_a_worker_is_asked_told_and_hastened(keeper: Keeper) -> None:
    body = await started(keeper, program(WORKER, min_uptime_s=None))
    await body.ready()
    await body.hasten(0.5)
    await until(lambda: "hasten 0.5" in body.tail(9))
    await body.ask(2.5)
    assert await body.ended() == Exit(Ending.EXITED, 0)
    assert "grace 2.5" in body.tail(9)


async def test_the_signal_that_asks_can_be_chosen(keeper: Keeper) -> None:
    body = await started(keeper, Program(command=("sleep", "9"), stop_signal=signal.SIGINT))
    await body.ask(1)
    assert await body.ended() == Exit(Ending.SIGNALLED, signal.SIGINT)


async def test_one_that_ignores_being_asked_is_forced(keeper: Keeper) -> None:
    body = await started(keeper, program(STUBBORN))
    await until(lambda: body.tail(1) == ["deaf"])
    await body.ask(0.1)
    assert members(_leader(body)) != []
    assert await end(body) == Exit.of_process(-signal.SIGKILL, is_forced=True)


async def test_a_stopped_process_is_woken_to_be_asked(keeper: Keeper) -> None:
    body = await started(keeper, SLEEP)
    pid = _leader(body)
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: state_of(pid) == "T")
    await body.ask(1)
    assert await body.ended() == Exit(Ending.SIGNALLED, signal.SIGTERM)


async def test_whoever_outlives_the_leader_is_killed_and_named(keeper: Keeper) -> None:
    code = """
import subprocess
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1000; done"], process_group=0)
"""
    body = await started(keeper, program(code))
    assert await body.ended() == Exit(Ending.EXITED, 0)
    assert "sleep" in body.survivors.values()
    assert all(is_gone(pid) for pid in body.survivors)


async def test_force_reaches_grandchildren_in_groups_of_their_own(keeper: Keeper) -> None:
    code = """
import subprocess
children = [subprocess.Popen(["sleep", "1000"], process_group=group) for group in (0, None)]
print(*[child.pid for child in children], flush=True)
children[0].wait()
"""
    body = await started(keeper, program(code))
    await until(lambda: body.tail(1))
    pids = [int(word) for word in body.tail(1)[0].split()]
    await end(body)
    assert all(is_gone(pid) for pid in pids)
    assert body.survivors == {}, "they were forced, not found"


async def test_suspending_is_confirmed(keeper: Keeper) -> None:
    body = await started(keeper, program(WORKER, min_uptime_s=None))
    await body.ready()
    await body.suspend()
    await body.resume()
    await end(body)
    deaf = await started(keeper, SLEEP)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(deaf.suspend(), 0.1)
    await end(deaf)


async def test_freezing_stops_the_whole_session(keeper: Keeper) -> None:
    """W-44."""
    code = (
        "import subprocess as s; p = s.Popen(['sleep', '1000']); print(p.pid, flush=True); p.wait()"
    )
    body = await started(keeper, program(code, freezes=True, suspendable=False))
    assert body.suspendable
    await until(lambda: body.tail(1))
    both = [_leader(body), int(body.tail(1)[0])]
    await body.suspend()
    assert [state_of(pid) for pid in both] == ["T", "T"]
    await body.resume()
    await until(lambda: "T" not in [state_of(pid) for pid in both])
    await body.suspend()
    await body.ask(1)
    assert (await body.ended()).number == signal.SIGTERM


async def test_a_probe_asks_the_child_itself(keeper: Keeper) -> None:
    body = await started(keeper, program(WORKER, min_uptime_s=None))
    await body.ready()
    assert await body.probe()
    os.kill(_leader(body), signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(body.probe(), 0.2)
    await end(body)
    foreign = await started(keeper, SLEEP)
    assert await foreign.probe(), "it can only be seen to live"
    await end(foreign)


async def test_a_child_that_closes_its_channel_is_unwell(keeper: Keeper) -> None:
    code = (
        LIGHT
        + """
inside = Inside.join()
inside.leave()
print("left", flush=True)
time.sleep(1000)
"""
    )
    body = await started(keeper, program(code))
    await until(lambda: body.tail(1) == ["left"])
    await until(lambda: not body._talk.is_open)  # type: ignore[union-attr] # noqa: SLF001
    assert not await body.probe()
    assert body.fault is None
    await end(body)


async def test_a_child_that_talks_nonsense_is_unwell(keeper: Keeper) -> None:
    code = (
        LIGHT
        + """
fd = int(os.environ["DETENT_CHANNEL_FD"])
Inside.join()
os.write(fd, b"\\xff\\xff\\xff\\xffnonsense")
time.sleep(1000)
"""
    )
    body = await started(keeper, program(code))
    # The channel is closed for that, and without it the child does not live on.
    assert await body.ended() == Exit(Ending.SIGNALLED, signal.SIGKILL)
    assert body.fault is not None
    assert body.fault.code == "channel_broken"


async def test_usage_is_that_of_the_whole_session(keeper: Keeper) -> None:
    hog = "x = bytearray(30_000_000); print('full', flush=True); import time; time.sleep(1000)"
    code = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", {hog!r}])
end = time.process_time() + 0.2
while time.process_time() < end: pass
print("busy", flush=True)
time.sleep(1000)
"""
    body = await started(keeper, program(code))
    await until(lambda: set(body.tail(9)) == {"full", "busy"})
    used = body.usage()
    assert used is not None
    assert used.rss_bytes > 35_000_000
    assert used.cpu_s >= 0.2
    await end(body)


async def test_what_it_says_it_has_done_is_part_of_its_usage(keeper: Keeper) -> None:
    heard: list[str] = []
    body = ProcessBody(
        program(WORKER, min_uptime_s=None),
        keeper=keeper,
        on_message=lambda message: heard.append(message["kind"]),
    )
    await body.spawn(HANDOVER)
    await body.ready()
    used = body.usage()
    assert used is not None
    assert used.done == 7
    assert heard == ["joined", "status", "ready"]
    await end(body)


async def test_a_listener_that_fails_does_not_end_the_conversation(
    keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: Message) -> None:
        raise KeyError(message["kind"])

    body = ProcessBody(program(WORKER, min_uptime_s=None), keeper=keeper, on_message=fail)
    await body.spawn(HANDOVER)
    await body.ready()
    assert await body.probe()
    assert "a listener failed on a message of kind joined" in caplog.text
    await end(body)


async def test_a_hung_child_shows_its_stacks(keeper: Keeper) -> None:
    code = (
        LIGHT
        + """
inside = Inside.join()
def spin():
    print("spinning", flush=True)
    # One call in C that does not let go of the interpreter for a long time.
    sum(range(10**12))
threading.Thread(target=time.sleep, args=(1000,), name="idle").start()
spin()
"""
    )
    body = await started(keeper, program(code))
    await until(lambda: body.tail(1) == ["spinning"])
    dump = await body.dump()
    assert "in spin" in dump
    assert dump.count("most recent call first") >= 3, "all threads"
    await end(body)


async def test_a_child_that_never_joined_is_not_signalled_for_a_dump(keeper: Keeper) -> None:
    body = await started(keeper, SLEEP)
    assert await body.dump() == ""
    assert not is_gone(_leader(body))
    await end(body)


async def test_limits_are_set_before_it_begins(keeper: Keeper) -> None:
    code = """
import os, resource
print(resource.getrlimit(resource.RLIMIT_AS)[0], os.nice(0))
try: x = bytearray(1_000_000_000)
except MemoryError: print("no memory")
"""
    body = await started(keeper, program(code, memory_bytes=500_000_000, nice=3))
    await body.ended()
    assert body.tail(9) == [f"500000000 {os.nice(0) + 3}", "no memory"]


async def test_a_child_gets_its_signals_as_a_fresh_program_expects_them(keeper: Keeper) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        body = await started(keeper, SLEEP)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert _masks(body) == {"SigIgn": set(), "SigBlk": set()}
    await end(body)


async def test_nothing_of_what_its_parent_ignores_or_blocks_reaches_a_child() -> None:
    # Those of crashes are left to faulthandler, which could not be given them back.
    kept = ("KILL", "STOP", "SEGV", "FPE", "ABRT", "BUS", "ILL")
    deaf = signal.valid_signals() - {getattr(signal, f"SIG{name}") for name in kept}
    # A shell ignores SIGINT and SIGQUIT for what runs in its background, nohup SIGHUP, Python
    # SIGPIPE and SIGXFSZ; and a thread blocks what the one that began it had blocked.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in deaf}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, deaf)
    keeper = Keeper()
    try:
        body = await started(keeper, SLEEP)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert _masks(body) == {"SigIgn": set(), "SigBlk": set()}
    await end(body)
    keeper.close()


async def test_fifty_rounds_leave_nothing_behind(keeper: Keeper) -> None:
    """Behaviour 4."""
    await end(await started(keeper, SLEEP))
    before = (_files(), threading.active_count())
    loop, took = asyncio.get_running_loop(), []
    for _ in range(50):
        body = await started(keeper, SLEEP)
        pid = _leader(body)
        at = loop.time()
        await body.ask(1)
        assert (await body.ended()).number == signal.SIGTERM
        took.append(loop.time() - at)
        assert members(pid) == []
        assert state_of(pid) is None, "reaped"
    await until(lambda: (_files(), threading.active_count()) == before)
    assert statistics.median(took) < 1, "each, on a machine that has nothing else to do"


def _masks(body: ProcessBody) -> dict[str, set[int]]:
    """Which signals it ignores and blocks, of those that a program may name.

    The C library keeps two for itself: what was started by `posix_spawn`, as make does it, ignores
    them, and everything below it too. Nobody can change that, and to nobody does it matter.
    """
    status = Path(f"/proc/{_leader(body)}/status").read_text("utf-8")
    return {
        name: {number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1}
        for name, mask in re.findall(r"^(SigIgn|SigBlk):\t(\w+)$", status, re.MULTILINE)
    }


def _files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _leader(body: ProcessBody) -> int:
    leader = body._leader  # noqa: SLF001
    assert leader is not None
    return leader.pid
