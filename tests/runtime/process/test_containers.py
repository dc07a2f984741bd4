"""Workers that are containers, run by a small program that behaves like a runtime.

With `DETENT_TEST_CONTAINERS=docker` (or `podman`) one test runs a real container too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from detent.errors import CommandNotFound, ContainerError, ProcessError, StartFailed
from detent.host import is_alive, state_of
from detent.lifecycle.worker import Ending, Exit
from detent.runtime.process import containers
from detent.runtime.process.containers import ContainerBody, Image
from detent.runtime.process.rotation import Files
from detent.runtime.process.runtime import Runtime, State
from detent.runtime.supervisor.diagrams import tree_diagram
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.spec import Spec
from detent.runtime.supervisor.supervisor import Supervisor
from detent.runtime.supervisor.tree import Tree
from tests.runtime.process.yard import HANDOVER, is_gone
from tests.runtime.supervisor.stage import Numbers
from tests.waiting import until

FAKE = str(Path(__file__).with_name("fake_runtime.py"))
REAL = os.environ.get("DETENT_TEST_CONTAINERS")
SLEEP = ("sleep", "1000")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The stand-in for a runtime, with a home of its own."""
    monkeypatch.setenv("FAKE_RUNTIME", str(tmp_path))
    return Runtime(sys.executable, "-S", FAKE)


def image(*command: str, **more: float) -> Image:
    """An image that runs a command of this machine."""
    return Image(image="any", command=command, min_uptime_s=more.get("min_uptime_s", 0.05))


async def started(runtime: Runtime, *command: str) -> ContainerBody:
    """A container that runs."""
    body = ContainerBody(image(*command), runtime=runtime)
    await body.spawn(HANDOVER)
    return body


async def test_a_container_lives_and_is_stopped(runtime: Runtime, tmp_path: Path) -> None:
    """W-82, behaviour 6."""
    code = 'echo "$LIFECYCLE_INSTANCE_ID $OWN"; exec sleep 1000'
    wanted = Image(
        image="any", command=("sh", "-c", code), environment={"OWN": "x"}, min_uptime_s=0.05
    )
    files = Files(tmp_path / "logs", "slot")
    body = ContainerBody(wanted, runtime=runtime, files=files)
    born = await body.spawn(HANDOVER)
    assert born is not None
    assert is_alive(born.pid, born.process_at)
    assert (body.kind, body.suspendable, body.usage()) == ("container", True, None)
    await body.ready()
    assert await body.probe()
    await until(lambda: body.tail(1) == ["i-1 x"])
    await body.hasten(1)
    assert await body.dump() == ""
    await body.ask(5)
    assert await body.ended() == Exit(Ending.EXITED, 143), "as a runtime tells a SIGTERM"
    assert is_gone(born.pid)
    assert _known(tmp_path) == [], "it was removed"
    files.close()
    assert files.path.read_bytes() == b"i-1 x\n"
    for late in (body.ask(1), body.force(), body.resume()):
        await late
    assert not await body.probe()


async def test_a_container_is_drawn_with_where_it_is(runtime: Runtime, tmp_path: Path) -> None:
    """W-82, W-87, W-91."""
    with closing(Journal(tmp_path / "supervisor")) as journal:
        make = partial(ContainerBody, image(*SLEEP), runtime=runtime)
        spec = Spec("box", make, kind="container", needs_ready_signal=False)
        supervisor = Supervisor(Tree(journal), [spec])
        await supervisor.start()
        [shown] = supervisor.snapshot().children
        drawn = tree_diagram(supervisor.snapshot())
        await supervisor.stop()
    told = dict(shown.metadata)
    assert told["type"] == "container"
    assert (told["image"], told["ip"], told["ports"]) == ("any", "172.17.0.2", "8080:80/tcp, 9/udp")
    assert "<br/>🌐 172.17.0.2<br/>🔌 8080:80/tcp, 9/udp<br/><i>any</i>" in drawn


async def test_a_container_ends_by_itself(runtime: Runtime) -> None:
    body = await started(runtime, "sh", "-c", "echo out; exit 3")
    assert await body.ended() == Exit(Ending.EXITED, 3)
    assert body.tail(9) == ["out"]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(body.ready(), 0.2)


async def test_a_container_that_does_not_stop_is_killed(runtime: Runtime) -> None:
    """W-27."""
    body = await started(runtime, "sh", "-c", "trap '' TERM; while :; do sleep 0.01; done")
    await body.ask(0.1)
    await body.force()
    assert await body.ended() == Exit.of_process(-9, is_forced=True)


async def test_a_container_is_frozen_and_goes_on(runtime: Runtime) -> None:
    body = await started(runtime, *SLEEP)
    pid = body.state.pid
    await body.suspend()
    await until(lambda: state_of(pid) == "T")
    await body.resume()
    await until(lambda: state_of(pid) != "T")
    await body.force()
    await body.ended()


async def test_what_a_dead_supervisor_left_running_is_removed_first(
    runtime: Runtime, tmp_path: Path
) -> None:
    first = await started(runtime, *SLEEP)
    left = first.state.pid
    containers.WATCHED.clear()
    second = await started(runtime, *SLEEP)
    await until(lambda: is_gone(left))
    assert len(_known(tmp_path)) == 1
    # Whoever watched it hears how it was killed, or if that was too late, that it vanished.
    gone = await first.ended()
    vanished = Exit(Ending.RAISED, code="container_error")
    assert gone in (vanished, Exit(Ending.EXITED, number=137)), "it was removed under its watch"
    await second.force()
    await second.ended()


async def test_who_follows_in_a_slot_leaves_the_one_before_it_to_finish(runtime: Runtime) -> None:
    """The replacement starts first; what the old one ran was killed by that."""
    before = set(containers.WATCHED)
    old = await started(runtime, *SLEEP)
    fresh = await started(runtime, *SLEEP)
    assert not any(is_gone(one.state.pid) for one in (old, fresh))
    for one in (old, fresh):
        await one.force()
        await one.ended()
    assert before == containers.WATCHED


async def test_a_runtime_that_fails_says_nothing_about_the_container(
    runtime: Runtime, tmp_path: Path
) -> None:
    body = await started(runtime, *SLEEP)
    _break(tmp_path, "Cannot connect to the daemon")
    assert not await body.probe()
    with pytest.raises(ContainerError, match="Cannot connect"):
        await body.suspend()
    ended = asyncio.create_task(body.ended())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(ended), 0.3)
    _break(tmp_path, None)
    assert await body.probe()
    await body.force()
    assert (await ended).is_forced


async def test_a_runtime_that_is_gone_for_a_moment_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An upgrade takes the program away; whoever stopped asking would never see an end again."""
    monkeypatch.setenv("FAKE_RUNTIME", str(tmp_path))
    program = tmp_path / "runtime"
    _install(program)
    body = await started(Runtime(str(program)), *SLEEP)
    program.unlink()
    await until(lambda: "nothing is known of container" in caplog.text)
    assert not await body.probe()
    _install(program)
    os.kill(body.state.pid, signal.SIGKILL)
    assert await body.ended() == Exit(Ending.EXITED, 137)


@pytest.mark.parametrize("what", ["file or directory", "host"])
async def test_only_a_container_that_there_is_none_of_is_gone(
    runtime: Runtime, tmp_path: Path, what: str
) -> None:
    """W-82: a socket that is missing was taken for the container, which was then removed."""
    body = await started(runtime, *SLEEP)
    _break(tmp_path, f"dial unix /run/podman.sock: connect: no such {what}")
    with pytest.raises(ContainerError, match="no such"):
        await runtime.inspect(body.state.status)
    _break(tmp_path, None)
    assert await runtime.inspect("x") is None
    await body.force()
    assert (await body.ended()).is_forced


@pytest.mark.parametrize("said", ["", "lorem ipsum", "Unable to find image locally\n0123456789ab"])
async def test_what_answers_with_no_id_was_not_started(tmp_path: Path, said: str) -> None:
    """Nobody could ever see its end."""
    (tmp_path / "said").write_text(said)
    body = ContainerBody(image(*SLEEP), runtime=Runtime("sh", "-c", f"cat {tmp_path / 'said'}"))
    with pytest.raises(ContainerError, match="no id of a container"):
        await body.spawn(HANDOVER)
    assert (await body.ended()).how is Ending.UNSPAWNED


async def test_what_a_runtime_began_without_an_answer_is_removed(
    runtime: Runtime, tmp_path: Path
) -> None:
    """It was called off, and the container was there already."""
    body = ContainerBody(image(*SLEEP), runtime=runtime)
    (tmp_path / "slow").touch()
    spawning = asyncio.create_task(body.spawn(HANDOVER))
    await until(lambda: _pids(tmp_path) != [])
    [pid] = _pids(tmp_path)
    spawning.cancel()
    await body.force()
    assert _known(tmp_path) == []
    await until(lambda: is_gone(pid))


async def test_a_frozen_container_hears_that_it_is_to_stop(runtime: Runtime) -> None:
    """E14, W-44: it was killed at the end of its grace."""
    body = await started(runtime, *SLEEP)
    await body.suspend()
    await body.ask(5)
    assert await body.ended() == Exit(Ending.EXITED, 143)


async def test_a_frozen_container_is_killed(runtime: Runtime) -> None:
    body = await started(runtime, *SLEEP)
    await body.suspend()
    for _ in range(2):  # as the supervisor does, each second
        await body.force()
    assert (await body.ended()).is_forced


async def test_containers_are_counted_by_their_image(runtime: Runtime) -> None:
    """W-112."""
    numbers = Numbers()
    body = ContainerBody(image("true"), runtime=runtime, metrics=numbers)
    await body.spawn(HANDOVER)
    await body.ended()
    missing = ContainerBody(Image(image="none"), runtime=runtime, metrics=numbers)
    with pytest.raises(ContainerError):
        await missing.spawn(HANDOVER)
    assert numbers.labels == {
        "lifecycle_container_started_total": [{"image": "any"}],
        "lifecycle_container_ended_total": [{"image": "any"}],
        "lifecycle_container_failed_total": [{"image": "none"}],
    }


async def test_what_cannot_be_run_says_why(runtime: Runtime) -> None:
    missing = ContainerBody(Image(image="none"), runtime=runtime)
    with pytest.raises(ContainerError, match="Unable to find image") as caught:
        await missing.spawn(HANDOVER)
    assert caught.value.fields["command"] == "run"
    assert (await missing.ended()).how is Ending.UNSPAWNED
    nothing = ContainerBody(image(*SLEEP), runtime=Runtime("there-is-no-such-runtime"))
    with pytest.raises(CommandNotFound):
        await nothing.spawn(HANDOVER)
    with pytest.raises(ProcessError):
        await ContainerBody(image(*SLEEP)).ended()


async def test_whoever_starts_a_tree_is_told_why_there_is_no_container(
    runtime: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The code alone does not say which image, and the traceback is about us."""

    def make() -> ContainerBody:
        return ContainerBody(Image(image="none"), runtime=runtime)

    with closing(Journal(tmp_path / "supervisor")) as journal:
        supervisor = Supervisor(Tree(journal), [Spec("box", make, kind="container")])
        with pytest.raises(StartFailed, match="Unable to find image 'none:latest'"):
            await supervisor.start()
    assert "Unable to find image" in caplog.text
    assert not any(record.exc_info for record in caplog.records)


async def test_a_runtime_that_hangs_is_not_waited_for() -> None:
    with pytest.raises(ContainerError, match="no answer"):
        await Runtime("sleep").call("1000", limit_s=0.05)
    with pytest.raises(ContainerError):
        await Runtime("echo").inspect("x")


async def test_a_log_that_does_not_end_is_cut_off(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_LOG_S", 0.05)
    body = await started(runtime, "sh", "-c", "exit 0")
    body._log = None  # noqa: SLF001
    await body.ended()
    endless = ContainerBody(image(*SLEEP), runtime=Runtime("sh", "-c", "sleep 1000"))
    await endless._follow(HANDOVER)  # noqa: SLF001
    await endless._finish_log()  # noqa: SLF001


@pytest.mark.parametrize(
    ("said", "well", "healthy", "over"),
    [
        (State(status="running"), True, None, False),
        (State(status="running", health={"Status": "starting"}), True, None, False),
        (State(status="running", health={"Status": "healthy"}), True, True, False),
        (State(status="running", health={"Status": "unhealthy"}), False, False, False),
        (State(status="paused"), False, None, False),
        (State(status="exited"), False, None, True),
    ],
)
async def test_a_check_of_the_image_counts(
    said: State, well: bool, healthy: bool | None, over: bool
) -> None:
    assert (said.is_well, said.healthy, said.is_over) == (well, healthy, over)
    body = ContainerBody(image(*SLEEP))
    body.state = said
    if said.health is None:
        return
    if healthy:
        await body.ready()
    else:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(body.ready(), 0.01)


def test_a_kill_for_memory_is_the_runtimes_word() -> None:
    body = ContainerBody(image(*SLEEP))
    found = State(status="exited", exit_code=137, oom_killed=True)
    assert body._exit(found) == Exit.of_process(-9, is_oom=True)  # noqa: SLF001


@pytest.mark.skipif(REAL is None, reason="DETENT_TEST_CONTAINERS names no runtime")
async def test_a_real_container() -> None:
    body = ContainerBody(
        Image(image="busybox", command=("sh", "-c", "echo hello; exec sleep 1000")),
        runtime=Runtime(str(REAL)),
    )
    await body.spawn(HANDOVER)
    await body.ready()
    await until(lambda: body.tail(1) == ["hello"])
    await body.ask(1)
    await body.force()
    assert (await body.ended()).how in (Ending.EXITED, Ending.SIGNALLED)


def _known(home: Path) -> list[Path]:
    return list(home.glob("*.json"))


def _pids(home: Path) -> list[int]:
    found = [json.loads(path.read_text())["Pid"] for path in _known(home)]
    return [pid for pid in found if pid]


def _install(program: Path) -> None:
    """A program of its own, as a runtime is; complete when it is there."""
    made = program.with_suffix(".new")
    made.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} "$@"\n')
    made.chmod(0o755)
    made.rename(program)


def _break(home: Path, why: str | None) -> None:
    if why is None:
        (home / "broken").unlink()
    else:
        (home / "broken").write_text(why)
