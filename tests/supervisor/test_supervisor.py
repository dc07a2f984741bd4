"""`detent.supervisor` as a program uses it: real functions, threads, processes and signals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detent.errors import (
    AlreadyStarted,
    BadSpec,
    JournalLocked,
    NotStarted,
    NotSuspendable,
    SlotExists,
    StartFailed,
    TooManyRestarts,
    UnknownSlot,
)
from detent.host import state_of
from detent.supervisor import (
    Backoff,
    Container,
    Function,
    Probe,
    Process,
    Snapshot,
    Spec,
    Supervisor,
    WorkerContext,
)
from tests.runtime.process.yard import WORKER, is_gone
from tests.waiting import until

QUICK = Backoff(initial=0.01)
# One write, so that the line is whole wherever it is seen.
SLEEPER = "import os, time; os.write(1, b'here\\n'); time.sleep(1000)"
FAKE_RUNTIME = Path(__file__).parents[1] / "runtime" / "process" / "fake_runtime.py"


def sleeper(**more: Any) -> Process:
    return Process(sys.executable, "-c", SLEEPER, **{"min_uptime": 0.05, **more})


async def forever(_: WorkerContext) -> None:
    await asyncio.Event().wait()


async def crash(_: WorkerContext) -> None:
    raise ValueError("no")


def thread(worker: WorkerContext) -> None:
    worker.stopping.wait(60)


async def seen(supervisor: Supervisor, looks_so: Callable[[Snapshot], bool]) -> Snapshot:
    """The first tree that looks so."""
    async for tree in supervisor.watch():
        if looks_so(tree):
            return tree
    raise AssertionError("it never looked so")


async def test_functions_run_until_the_supervisor_is_left() -> None:
    async with Supervisor(
        Spec("loop", Function(forever)), Spec("thread", Function(thread))
    ) as supervisor:
        tree = supervisor.tree()
        assert [(one.name, one.kind, one.status) for one in tree.children] == [
            ("loop", "function", "Running"),
            ("thread", "function", "Running"),
        ]
        assert supervisor.output("loop") == []
    assert [one.status for one in supervisor.tree().children] == ["Stopped", "Stopped"]


async def test_a_function_that_fails_is_restarted_with_its_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[tuple[int, str | None]] = []

    async def twice(worker: WorkerContext) -> None:
        attempts.append((worker.handover.attempt, worker.handover.prev_status))
        if len(attempts) == 1:
            raise ValueError("not yet")
        await forever(worker)

    async with Supervisor(Spec("a", Function(twice), backoff=QUICK)) as supervisor:
        await until(lambda: len(attempts) == 2)
        await seen(supervisor, lambda tree: tree.children[0].status == "Running")
    assert attempts == [(1, None), (2, "Failed")]
    assert "ValueError: not yet" in caplog.text
    assert "Traceback" in caplog.text


async def test_a_function_that_only_makes_a_coroutine_fails() -> None:
    """It would run as a thread that does nothing, and count as finished."""

    def returns_coroutine(worker: WorkerContext) -> object:
        return forever(worker)

    made = Function(returns_coroutine)
    async with Supervisor(Spec("a", made, restart="never")) as supervisor:
        await seen(supervisor, lambda tree: tree.children[0].status == "Failed")
        assert supervisor.status("a").code == "bad_spec"


@pytest.mark.parametrize(("restart", "status"), [("on_failure", "Finished"), ("never", "Finished")])
async def test_a_function_that_is_done_stays_so(restart: Any, status: str) -> None:
    async def done(_: WorkerContext) -> None:
        """Nothing to do."""

    async with Supervisor(Spec("a", Function(done), restart=restart)) as supervisor:
        await seen(supervisor, lambda tree: tree.children[0].status == status)


async def test_a_function_is_suspended_between_two_units_of_work() -> None:
    units = 0

    async def work(worker: WorkerContext) -> None:
        nonlocal units
        worker.ready()
        while True:
            await worker.acheckpoint()
            units += 1
            await asyncio.sleep(0)

    function = Function(work, suspendable=True, wait_ready=True, probe=lambda: units > 0)
    async with Supervisor(
        Spec("a", function, probe=Probe()), Spec("deaf", Function(forever))
    ) as supervisor:
        await supervisor.suspend("a")
        assert (supervisor.status("a").status, supervisor.status("a").is_suspended) == (
            "Suspended",
            True,
        )
        before = units
        for _ in range(20):
            await asyncio.sleep(0)
        assert units == before
        await supervisor.resume("a")
        await until(lambda: units > before)
        assert (await supervisor.check("a")).health == "healthy"
        with pytest.raises(NotSuspendable):
            await supervisor.suspend("deaf")


async def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    spec = Spec("web", sleeper(env={"OWN": "1"}, cwd=tmp_path), backoff=QUICK)
    async with Supervisor(spec, directory=tmp_path / "state") as supervisor:
        first = supervisor.status("web").pid
        assert first is not None
        await until(lambda: supervisor.output("web") == ["here"])
        os.kill(first, signal.SIGKILL)

        def is_another(tree: Snapshot) -> bool:
            return tree.children[0].status == "Running" and tree.children[0].pid != first

        second = (await seen(supervisor, is_another)).children[0].pid
        assert second is not None
        await until(lambda: supervisor.output("web") == ["here"])
    assert is_gone(second)
    log = tmp_path / "state" / "logs" / "web.log"
    assert log.read_text().splitlines() == ["here", "here"]


async def test_the_verbs_for_one_worker() -> None:
    async with Supervisor(Spec("a", sleeper(), backoff=QUICK, grace=20)) as supervisor:

        def pid() -> int:
            found = supervisor.status("a").pid
            assert found is not None
            return found

        first = pid()
        await supervisor.suspend("a")
        assert state_of(first) == "T"
        await supervisor.resume("a")
        await until(lambda: state_of(first) != "T")
        await supervisor.restart("a")
        second = pid()
        assert second != first
        await supervisor.stop("a", grace=20)
        assert supervisor.status("a").status == "Stopped"
        await supervisor.start("a")
        third = pid()
        await supervisor.kill("a")
        assert is_gone(third)
        await until(lambda: supervisor.status("a").status == "Running")
        with pytest.raises(UnknownSlot, match="'b'"):
            await supervisor.stop("b")


async def test_a_process_that_speaks_on_its_channel_says_itself_what_it_is() -> None:
    worker = Process(sys.executable, "-c", WORKER, min_uptime=None, freeze=False)
    async with Supervisor(Spec("a", worker, grace=20)) as supervisor:
        pid = supervisor.status("a").pid
        assert pid is not None
        await supervisor.suspend("a")
        assert supervisor.status("a").status == "Suspended"
        assert state_of(pid) != "T", "it was asked, and not frozen"
        await supervisor.resume("a")
        assert (await supervisor.check("a")).health == "healthy"


async def test_workers_come_and_go() -> None:
    async with Supervisor() as supervisor:
        await supervisor.add(Spec("a", Function(forever)))
        await supervisor.add(Spec("branch", Supervisor(Spec("b", Function(forever)))))
        with pytest.raises(SlotExists):
            await supervisor.add(Spec("a", Function(forever)))
        with pytest.raises(StartFailed, match="no-such-program"):
            await supervisor.add(Spec("c", Process("no-such-program")))
        await supervisor.remove("a")
        assert [one.path for one in supervisor.tree().children] == ["branch"]
        assert supervisor.status("branch/b").status == "Running"


async def test_one_that_does_not_start_stops_the_others() -> None:
    stopped: list[bool] = []

    async def first(worker: WorkerContext) -> None:
        try:
            await forever(worker)
        finally:
            stopped.append(True)

    with pytest.raises(StartFailed, match="no-such-program"):
        async with Supervisor(Spec("a", Function(first)), Spec("b", Process("no-such-program"))):
            raise AssertionError("it must not start")
    assert stopped == [True]


async def test_supervisors_nest(tmp_path: Path) -> None:
    branch = Supervisor(
        Spec("one", Function(forever)), Spec("two", sleeper()), strategy="one_for_all"
    )
    spec = Spec("branch", branch, grace=20)
    async with Supervisor(spec, directory=tmp_path) as supervisor:
        [shown] = supervisor.tree().children
        assert (shown.kind, shown.status) == ("supervisor", "Running")
        assert [one.path for one in shown.children] == ["branch/one", "branch/two"]
        before = supervisor.status("branch/one").instance
        await supervisor.stop("branch/two")
        await supervisor.start("branch/two")
        assert supervisor.status("branch/one").instance == before, "nobody has failed"
        await until(lambda: supervisor.output("branch/two") == ["here"])
        with pytest.raises(NotStarted):
            branch.tree()
    assert (tmp_path / "logs" / "branch%2Ftwo.log").exists()


async def test_in_a_group_all_are_restarted_when_one_fails() -> None:
    starts: list[str] = []

    async def steady(worker: WorkerContext) -> None:
        starts.append("steady")
        await forever(worker)

    async def fails_once(worker: WorkerContext) -> None:
        starts.append("fails once")
        if worker.handover.attempt == 1:
            await until(lambda: len(starts) == 2)
            raise ValueError
        await forever(worker)

    async with Supervisor(
        Spec("a", Function(steady)),
        Spec("b", Function(fails_once)),
        strategy="one_for_all",
        backoff=QUICK,
    ):
        await until(lambda: len(starts) == 4)
    assert starts == ["steady", "fails once"] * 2


async def test_a_supervisor_gives_up_and_the_one_above_starts_another() -> None:
    inner = Backoff(initial=0.0, max_restarts=1, escalate=True)
    branch = Supervisor(Spec("a", Function(crash), backoff=inner))
    outer = Backoff(initial=0.0, max_restarts=2, escalate=True)
    async with Supervisor(Spec("branch", branch, backoff=outer)) as supervisor:
        with pytest.raises(TooManyRestarts, match="branch") as caught:
            await asyncio.wait_for(supervisor.wait(), 60)
    assert caught.value.fields["workers"] == ["branch"]


async def test_a_supervisor_starts_once_and_uses_its_directory_alone(tmp_path: Path) -> None:
    supervisor = Supervisor(Spec("a", Function(forever, suspendable=False)), directory=tmp_path)
    with pytest.raises(NotStarted):
        supervisor.status("a")
    await supervisor.shutdown()
    async with supervisor:
        with pytest.raises(JournalLocked):
            async with Supervisor(directory=tmp_path):
                raise AssertionError("it must not start")
        resume_id = supervisor.status("a").resume_id
        with pytest.raises(BadSpec):
            Spec("branch", supervisor)
    with pytest.raises(AlreadyStarted):
        await supervisor.__aenter__()
    async with Supervisor(Spec("a", Function(forever)), directory=tmp_path) as next_one:
        assert next_one.status("a").resume_id == resume_id
    await next_one.wait()


async def test_a_container_runs_under_the_named_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_RUNTIME", str(tmp_path))
    runtime = tmp_path / "runtime"
    runtime.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE_RUNTIME} "$@"\n')
    runtime.chmod(0o755)
    box = Container(
        "any",
        *("sh", "-c", "echo $OWN; exec sleep 1000"),
        env={"OWN": "x"},
        options=["--init"],
        min_uptime=0.05,
        runtime=str(runtime),
    )
    async with Supervisor(Spec("box", box, grace=20)) as supervisor:
        shown = supervisor.status("box")
        assert (shown.kind, shown.status) == ("container", "Running")
        assert dict(shown.metadata)["image"] == "any"
        await until(lambda: supervisor.output("box") == ["x"])


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("function", lambda: Function(lambda: None)),  # type: ignore[arg-type, misc]
        ("command", Process),
        ("image", lambda: Container("")),
        ("name", lambda: Spec("a/b", Function(forever))),
        ("worker", lambda: Spec("a", forever)),  # type: ignore[arg-type]
        ("restart", lambda: Spec("a", Function(forever), restart="maybe")),  # type: ignore[arg-type]
        ("grace", lambda: Spec("a", Function(forever), grace=-1)),
        ("start_timeout", lambda: Spec("a", Function(forever), start_timeout=0)),
        ("name", lambda: Supervisor(Spec("a", Process("x")), Spec("a", Process("y")))),
        ("strategy", lambda: Supervisor(strategy="all")),  # type: ignore[arg-type]
        ("shutdown_timeout", lambda: Supervisor(shutdown_timeout=0)),
        ("directory", lambda: Spec("a", Supervisor(directory="x"))),
        ("backoff.initial", lambda: Backoff(initial=-1)),
        ("backoff.longest", lambda: Backoff(initial=2, longest=1)),
        ("backoff.max_restarts", lambda: Backoff(max_restarts=0)),
        ("backoff.window", lambda: Backoff(window=0)),
        ("backoff.cooldown", lambda: Backoff(cooldown=0)),
        ("probe.interval", lambda: Probe(interval=0)),
        ("probe.timeout", lambda: Probe(timeout=0)),
        ("probe.failures", lambda: Probe(failures=0)),
    ],
)
def test_what_cannot_work_is_refused_by_name(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(BadSpec) as caught:
        make()
    assert caught.value.fields["field"] == field
    assert str(caught.value)


def test_restarts_without_a_limit_and_builtins_are_fine() -> None:
    assert Spec("a", Function(print), backoff=Backoff(max_restarts=None)).name == "a"
    assert Spec("a", Function(vars)).name == "a"


PROGRAM = """
import asyncio, sys
from detent.supervisor import *

async def tick(worker):
    print("ticking", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("stopped", flush=True)

asyncio.run(Supervisor(Spec("tick", Function(tick))).run())
"""


def test_a_program_runs_until_a_signal() -> None:
    with subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-W", "error", "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ticking\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 0


async def test_a_program_ends_when_its_supervisor_gives_up() -> None:
    limits = Backoff(initial=0.0, max_restarts=1, escalate=True)
    with pytest.raises(TooManyRestarts):
        await asyncio.wait_for(Supervisor(Spec("a", Function(crash), backoff=limits)).run(), 60)
