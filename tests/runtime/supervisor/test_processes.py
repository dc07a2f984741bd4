"""The supervisor with real processes, real signals and a real `kill -9`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.errors import StartFailed
from detent.host import members, start_time, state_of
from detent.lifecycle.worker import Instance, WorkerState
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.launching import Program
from detent.runtime.remains import SessionRemains
from detent.runtime.supervisor.backoff import Backoff
from detent.runtime.supervisor.body import Born
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.spec import Restart, Spec
from detent.runtime.supervisor.supervisor import Supervisor
from detent.runtime.supervisor.tree import Tree
from tests.runtime.process.yard import SECONDS, WORKER, python
from tests.runtime.supervisor.test_restarting import live
from tests.waiting import eventually, signal_again, until

_S = WorkerState
ROOT = Path(__file__).parents[3]
QUICK = Backoff(initial_s=0.05)
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


def spec(name: str, code: str, *, min_uptime_s: float | None = 0.0, **more: Any) -> Spec:
    program = Program(command=python(code), min_uptime_s=min_uptime_s)
    more = {"backoff": QUICK, "restart": Restart.NEVER, "needs_ready_signal": False, **more}
    return Spec(name, lambda: ProcessBody(program), **more)


def later(code: str, go: Path) -> str:
    """A program that does it when it is let go, and not before somebody has seen it run."""
    return f"import os, sys, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{code}"


def supervisor(journal: Journal, *specs: Spec) -> Supervisor:
    return Supervisor(Tree(journal), specs, Plan())


async def outcome(one: Supervisor, name: str = "w") -> Instance:
    """How the instance that runs now ends."""
    current = one.slots[name].live
    if current is not None:
        await asyncio.wait_for(asyncio.shield(current.done), SECONDS)
    last = one.slots[name].last
    assert last is not None
    return last


@pytest.mark.parametrize(
    ("code", "state", "cause", "exit_code"),
    [
        ("", _S.FINISHED, "natural", 0),
        ("sys.exit(3)", _S.FAILED, "exit_code", 3),
        ("os.kill(os.getpid(), 15)", _S.STOPPED, "external_signal", -15),
        ("os.kill(os.getpid(), 9)", _S.FAILED, "sigkill_external", -9),
        ("os.abort()", _S.FAILED, "crash_signal", -6),
    ],
)
async def test_how_a_process_ends(
    journal: Journal, tmp_path: Path, code: str, state: WorkerState, cause: str, exit_code: int
) -> None:
    """W-13 to W-17, behaviour 2."""
    one = supervisor(journal, spec("w", later(code, tmp_path / "go")))
    await one.start()
    (tmp_path / "go").touch()
    ended = await outcome(one)
    assert (ended.state, ended.cause, ended.exit_code) == (state, cause, exit_code)
    await one.stop()


async def test_the_last_words_of_one_that_fails_are_in_the_log(
    journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fails = "print('no room', file=sys.stderr); sys.exit('port taken')"
    one = supervisor(journal, spec("w", later(fails, tmp_path / "go")))
    await one.start()
    (tmp_path / "go").touch()
    await outcome(one)
    [told] = [record.getMessage() for record in caplog.records if " of w " in record.getMessage()]
    assert told.endswith("failed (exit_code); it wrote last: port taken")
    await one.stop()


async def test_obedient_and_obstinate(journal: Journal) -> None:
    """Behaviour 2: stopped when it obeys, killed when it does not within a moment."""
    good = spec("good", WORKER, min_uptime_s=None)
    one = supervisor(journal, good, spec("bad", DEAF, stop_grace_s=0.001))
    await one.start()
    lives = [live(one, name) for name in ("good", "bad")]
    pids = [current.record.pid for current in lives]
    await asyncio.wait_for(one.stop(), SECONDS)
    assert [current.state for current in lives] == [_S.STOPPED, _S.KILLED]
    assert all(pid is not None and state_of(pid) is None for pid in pids)
    assert [current.record.cause for current in lives] == ["requested", "grace_exceeded"]


async def test_it_goes_quiet_comes_back_and_answers(journal: Journal) -> None:
    """W-37, W-83 over a real channel."""
    one = supervisor(journal, spec("w", WORKER, min_uptime_s=None))
    await one.start()
    await asyncio.wait_for(one.suspend("w"), SECONDS)
    assert live(one, "w").state is _S.SUSPENDED
    await asyncio.wait_for(one.resume("w"), SECONDS)
    assert (await one.inspect("w", fresh=True)).health == "healthy"
    usage = live(one, "w").body.usage()
    assert usage is not None
    assert usage.rss_bytes > 0
    await one.stop()


async def test_what_is_handed_over(journal: Journal, tmp_path: Path) -> None:
    """W-71 to W-74, behaviour 8: in the environment before the spawn, the real code afterwards."""
    code = (
        f"with open({str(tmp_path / 'told')!r}, 'a') as told:\n"
        "    names = ('RESUME_ID', 'ATTEMPT', 'PREV_EXIT', 'PREV_STATUS', 'PREV_CAUSE')\n"
        "    print(*(os.environ.get('LIFECYCLE_' + name) for name in names), file=told)\n"
        "sys.exit(7)\n"
    )
    code = later(code, tmp_path / "go")
    one = supervisor(journal, spec("w", code, restart=Restart.ALWAYS, breaker=None))
    await one.start()
    (tmp_path / "go").touch()
    told = tmp_path / "told"
    await until(lambda: told.exists() and len(told.read_text().splitlines()) >= 2)
    await one.stop()
    first, second = (line.split() for line in told.read_text().splitlines()[:2])
    assert first[1:] == ["1", "None", "None", "None"]
    assert second == [first[0], "2", "7", "Failed", "exit_code"]
    assert first[0] == one.slots["w"].row.resume_id


async def test_a_program_that_does_not_exist(journal: Journal) -> None:
    """W-34, W-15: spawn_error with the code of the error and an exit code of -1."""
    program = Program(command=("/no/such/program",))
    one = supervisor(journal, Spec("w", lambda: ProcessBody(program)))
    with pytest.raises(StartFailed) as caught:
        await one.start()
    fields = caught.value.fields
    assert (fields["cause"], fields["exit_code"]) == ("spawn_error", -1)
    assert fields["error_code"] == "command_not_found"


async def test_stacks_are_kept_before_a_kill(journal: Journal) -> None:
    """W-25: of a child that has joined its channel."""
    deaf = WORKER.replace("await told.wait()", "await asyncio.Event().wait()")
    one = supervisor(journal, spec("w", deaf, min_uptime_s=None, stop_grace_s=0.5))
    await one.start()
    current = live(one, "w")
    await asyncio.wait_for(one.stop_slot("w"), SECONDS)
    assert current.state is _S.KILLED
    assert "File" in (journal.dump_of(current.id) or "")


async def test_ten_rounds(journal: Journal) -> None:
    """Behaviour 4: nothing is left of any of them."""
    one = supervisor(journal, spec("w", "import time; time.sleep(60)"))
    await one.start()
    pids = set()
    for _ in range(10):
        pids.add(live(one, "w").record.pid)
        await asyncio.wait_for(one.restart("w"), SECONDS)
    await one.stop()
    assert len(pids) == 10
    assert all(pid is not None and not members(pid) for pid in pids)


# --- the supervisor as a process of its own -----------------------------------------------------

TREE = """
import asyncio, logging, pathlib, sys
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.launching import Program
from detent.runtime.remains import SessionRemains
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.signals import Signals
from detent.runtime.supervisor.spec import Spec
from detent.runtime.supervisor.supervisor import Supervisor
from detent.runtime.supervisor.tree import Tree

logging.basicConfig(stream=sys.stderr)
SHELL = "trap '' TERM; sleep 300 & echo $! > {mark}; wait; wait"

async def main():
    journal = Journal(pathlib.Path(sys.argv[1]))
    mark = sys.argv[1] + "/grandchild"
    program = Program(command=("/bin/sh", "-c", SHELL.format(mark=mark)), min_uptime_s=0.1)
    spec = Spec("w", lambda: ProcessBody(program), needs_ready_signal=False, stop_grace_s=100)
    one = Supervisor(Tree(journal), [spec], Plan(), remains=SessionRemains())
    async def reload(): print("reload", flush=True)
    signals = Signals(force=lambda: one.stop(0), reload=reload)
    with signals:
        await one.start()
        print("up", one.slots["w"].live.record.pid, len(one.lost), flush=True)
        await signals.cancelled.wait()
        print(signals.reason, flush=True)
        await signals.shut_down(one.stop())
    journal.close()

asyncio.run(main())
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        # Not measured: to measure it, coverage imports our package and drops it again, and asyncio
        # with it, whose second copy then does not know the errors of the first.
        calm = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
        path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", TREE, str(tmp_path / "tree")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**calm, "PYTHONPATH": path},
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return line.split()


def gone(pid: int) -> bool:
    return state_of(pid) in (None, "Z", "X")


def test_kill_of_the_supervisor(
    started: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Section 19: no worker, no grandchild survives; the next supervisor finds the loss."""
    first = started()
    _, pid, lost = said(first)
    grandchild = int((tmp_path / "tree" / "grandchild").read_text())
    assert lost == "0"
    assert not gone(grandchild)
    first.kill()
    first.wait()
    eventually(lambda: gone(int(pid)) and gone(grandchild))
    second = started()
    _, again, lost = said(second)
    assert (lost, again != pid) == ("1", True)


def test_a_second_signal_forces_and_leaves_nobody(
    started: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    """W-96, W-102: exit code 1, every session killed first, on record."""
    tree = started()
    _, pid, _ = said(tree)
    grandchild = int((tmp_path / "tree" / "grandchild").read_text())
    tree.send_signal(signal.SIGHUP)
    assert said(tree) == ["reload"]
    tree.send_signal(signal.SIGTERM)
    assert said(tree) == ["Signal:Terminate"]
    signal_again(tree)
    _, errors = tree.communicate(timeout=SECONDS)
    assert tree.returncode == 1
    assert "all workers are killed" in errors
    assert gone(int(pid))
    assert gone(grandchild)
    journal = Journal(tmp_path / "tree")
    last = journal.last_of("w")
    assert last is not None
    assert last.state is _S.KILLED
    journal.close()


async def test_remains_are_forced() -> None:
    """W-117: a session by pid and birth, and nobody whose birth differs."""
    remains = SessionRemains()
    command = ("/bin/sleep", "60")
    with subprocess.Popen(command, start_new_session=True) as sleeper:  # noqa: ASYNC220, S603
        at = start_time(sleeper.pid)
        assert at is not None
        assert not remains.is_alive(Born(sleeper.pid, at + 1))
        assert remains.is_alive(Born(sleeper.pid, at))
        await remains.force(Born(sleeper.pid, at + 1))
        assert sleeper.poll() is None
        await asyncio.wait_for(remains.force(Born(sleeper.pid, at)), SECONDS)
        assert sleeper.wait() == -signal.SIGKILL
    assert remains.boot
