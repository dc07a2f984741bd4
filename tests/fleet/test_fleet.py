"""A supervisor and its workers, as processes: they run jobs, die, drain and are told things."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys

import pytest

from detent.engine.processes import process_of
from detent.host import is_alive
from tests.fleet.yard import Yard
from tests.waiting import eventually, signal_again

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgresql"])


@pytest.mark.slow
@BOTH
def test_jobs_are_run_and_everything_ends_when_it_is_told_to(yard: Yard) -> None:
    handles = [yard.enqueue("quick", number) for number in range(50)]
    state = yard.folder / "above" / "state"
    fleet = yard.start("--workers", "2", "--state-dir", str(state))
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert state.parent.stat().st_mode == yard.marks.stat().st_mode
    assert [handle.result(timeout=30) for handle in handles] == list(range(50))
    for one in yard.workers():
        assert one.row is not None
        assert one.row.who is not None
        assert one.instance is not None
        born = (one.instance.pid or 0, one.instance.process_at or 0)
        assert one.row.who.process == process_of(*born), "row and journal mean the same process"
        assert is_alive(*born)
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(30) == 0, yard.log(fleet)
    assert yard.processes() == []
    assert yard.states(gone=True) == {"worker-1": "Stopped", "worker-2": "Stopped"}
    assert yard.detent("verify")


@pytest.mark.slow
@BOTH
def test_the_job_of_a_killed_worker_is_available_within_a_second(yard: Yard) -> None:
    """W-119."""
    job = yard.enqueue("until", "go")
    yard.start("--workers", "2")
    [pid] = eventually(lambda: yard.begun("go"))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(yard.begun("go")) == 2)
    yard.let_go("go")
    assert job.result(timeout=30) == "first"
    names = [event.name for event in job.history()]
    assert names == ["enqueue", "claim", "lose", "due", "claim", "complete"]
    lost, claimed = job.history()[2], job.history()[1]
    assert lost.at - claimed.at < 10_000_000
    assert lost.code == "lease_lost"
    assert f"pid {pid} " in (lost.reason or "")
    eventually(lambda: len(yard.workers()) == 2, "the slot is filled again")


@pytest.mark.slow
@BOTH
def test_after_the_death_of_the_whole_tree_the_next_fleet_takes_over_at_once(yard: Yard) -> None:
    job = yard.enqueue("until", "go")
    first = yard.start()
    eventually(lambda: yard.begun("go"))
    first.kill()
    eventually(lambda: yard.processes() == [], "no worker outlives its supervisor")
    yard.let_go("go")
    yard.start()
    assert job.result(timeout=30) == "first"
    lost = next(event for event in job.history() if event.name == "lose")
    assert lost.code == "lease_lost"
    yard.detent("verify")
    assert yard.states(gone=True) == {"worker-1": "Failed"}


@pytest.mark.slow
def test_no_grandchild_outlives_the_supervisor(yard: Yard) -> None:
    yard.enqueue("parent", "family")
    fleet = yard.start()
    eventually(lambda: yard.begun("family"))
    grandchild = int((yard.marks / "family.pid").read_text())
    assert grandchild in yard.processes()
    fleet.kill()
    eventually(lambda: yard.processes() == [])


@pytest.mark.slow
def test_a_drain_lets_jobs_finish_and_gives_the_others_back(yard: Yard) -> None:
    soon, never = yard.enqueue("until", "soon"), yard.enqueue("until", "never")
    fleet = yard.start("--grace", "6s")
    eventually(lambda: yard.begun("soon") and yard.begun("never"))
    fleet.send_signal(signal.SIGTERM)
    eventually(lambda: yard.states() == {"worker-1": "Stopping"})
    yard.let_go("soon")
    assert fleet.wait(30) == 0, yard.log(fleet)
    assert soon.result(timeout=1) == "first"
    assert [event.name for event in never.history()][-2:] == ["hand_back", "due"]
    assert never.status().state == "available"


@pytest.mark.slow
def test_ctrl_c_that_a_parent_passes_on_is_one_signal(yard: Yard) -> None:
    job = yard.enqueue("until", "soon")
    fleet = yard.start("--grace", "1h")
    eventually(lambda: yard.begun("soon"))
    fleet.send_signal(signal.SIGINT)
    fleet.send_signal(signal.SIGTERM)
    eventually(lambda: yard.states() == {"worker-1": "Stopping"})
    yard.let_go("soon")
    assert fleet.wait(30) == 0, yard.log(fleet)
    assert job.result(timeout=1) == "first"


@pytest.mark.slow
def test_a_second_signal_does_not_wait(yard: Yard) -> None:
    job = yard.enqueue("stubborn", "wall")
    fleet = yard.start("--grace", "1h")
    eventually(lambda: yard.begun("wall"))
    fleet.send_signal(signal.SIGTERM)
    eventually(lambda: yard.states() == {"worker-1": "Stopping"})
    signal_again(fleet)
    assert fleet.wait(30) == 1
    assert yard.processes() == []
    assert job.status().state in ("active", "available")


_AS_IN_A_TERMINAL = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Whoever is started behind somebody's back inherits that Ctrl-C is nothing to it."""


@pytest.mark.slow
def test_a_shell_that_turns_ctrl_c_into_a_second_signal_forces_nothing(yard: Yard) -> None:
    """W-96: a terminal interrupts everybody in it, and the shell then ends all that it started."""
    detent = f"{sys.executable} -m detent worker program.py --grace 1h"
    script = f"trap 'kill 0' INT; {detent} 2> shell.log & wait; wait"
    command = [sys.executable, "-c", _AS_IN_A_TERMINAL, "/bin/sh", "-c", script]
    with subprocess.Popen(command, cwd=yard.folder, start_new_session=True) as shell:  # noqa: S603
        try:
            job = yard.enqueue("until", "go")
            eventually(lambda: yard.begun("go"))
            os.killpg(shell.pid, signal.SIGINT)
            assert shell.wait(30) == -signal.SIGTERM
        except BaseException:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
    eventually(lambda: yard.states() == {"worker-1": "Stopping"})
    yard.let_go("go")
    assert job.result(timeout=30) == "first"
    eventually(lambda: not yard.processes())
    assert "forced" not in (yard.folder / "shell.log").read_text()


def slots_in(drawn: str) -> list[str]:
    """The slots that a picture of the tree names."""
    return re.findall(r"(\S+) \S+ [0-9a-f-]{36}$", drawn, re.MULTILINE)


@pytest.mark.slow
def test_operators_steer_workers_through_the_store(yard: Yard) -> None:
    """W-45."""
    yard.start("--workers", "2")
    assert (
        yard.detent("workers", "suspend", "worker-1", "--reason", "look") == "worker-1: suspend\n"
    )
    assert yard.states() == {"worker-1": "Suspended", "worker-2": "Running"}
    yard.detent("workers", "stop", "worker-2")
    assert "user " in yard.detent("workers", "history", "worker-2")
    job = yard.enqueue("quick", 1)
    eventually(lambda: "1 worker alive, none takes type quick" in job.why().answer)
    yard.detent("workers", "resume", "worker-1")
    assert job.result(timeout=30) == 1
    assert yard.detent("workers", "start", "worker-2") == "worker-2: start\n"
    assert yard.states() == {"worker-1": "Running", "worker-2": "Running"}
    before = yard.pids_of("worker-1")
    yard.detent("workers", "kill", "worker-1")
    eventually(lambda: yard.pids_of("worker-1") not in ([], before))
    assert set(slots_in(yard.detent("workers", "tree"))) == {"worker-1", "worker-2"}
    keepers = {"commands", "upkeep"}
    drawn = yard.detent("workers", "tree", "--all")
    assert set(slots_in(drawn)) == {"worker-1", "worker-2", *keepers}
    assert drawn.count(": supervisor ") == 1, "all are below the one that keeps them"
    assert "upkeep" not in yard.detent("workers", "list")
    assert "unknown_worker" in yard.detent("workers", "kill", "worker-9", code=1)
    assert "part of the supervisor" in yard.detent("workers", "stop", "commands", code=1)
    assert yard.detent("workers", "resume", "worker-1") == "worker-1: resume\n", "it still listens"


@pytest.mark.slow
def test_who_will_not_keeps_nobody_else_from_hearing(yard: Yard) -> None:
    """W-41: what all are told, each is told; and who has not done it is named."""
    yard.start("--workers", "3")
    yard.enqueue("until", "go")
    [pid] = eventually(lambda: yard.begun("go"))
    [busy] = [slot for slot in ("worker-1", "worker-2", "worker-3") if pid in yard.pids_of(slot)]
    said = yard.detent("workers", "suspend", "--grace", "1s", "--json", code=1)
    data, end = json.JSONDecoder().raw_decode(said)
    assert [one["slot"] for one in data["refused"]] == [busy]
    assert "suspend_timeout" in data["refused"][0]["error"]
    assert busy in said[end:]
    assert sorted(yard.states().values()) == ["Running", "Suspended", "Suspended"]
    assert yard.states()[busy] == "Running"
    yard.let_go("go")
    assert yard.detent("workers", "resume").count(": resume\n") == 3
    assert "stop all workers: 3 of 1 fleet. Name a" in yard.detent("workers", "stop", code=2)
    assert yard.detent("workers", "stop", "--all").count(": stop\n") == 3
    assert "There are no workers" in yard.detent("workers", "stop")


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_starts_does_not_end_the_fleet(yard: Yard) -> None:
    program = yard.folder / "program.py"
    held = """
import os, time
if os.environ.get("LIFECYCLE_INSTANCE_ID"):
    mark("importing")
    while not (MARKS / "go").exists():
        time.sleep(0.02)
"""
    program.write_text(program.read_text() + held)
    fleet = yard.begin("--workers", "2")
    pids = eventually(lambda: found if len(found := _importing(yard)) == 2 else [])
    os.kill(pids[0], signal.SIGKILL)
    again = eventually(lambda: found if len(found := _importing(yard)) == 3 else [])
    yard.let_go("go")
    eventually(lambda: yard.is_up(fleet), "the fleet does not come up")
    assert {pid for slot in ("worker-1", "worker-2") for pid in yard.pids_of(slot)} == set(
        again[1:]
    )


def _importing(yard: Yard) -> list[int]:
    path = yard.marks / "importing"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


_ADDED = """

@app.job(queue="of-its-own")
def added() -> str:
    return "added"
"""


def added() -> str:
    """Only a program that was written later has it."""
    raise AssertionError


@pytest.mark.slow
def test_a_reload_runs_the_new_program_and_keeps_the_old_one_if_that_is_broken(yard: Yard) -> None:
    fleet = yard.start()
    yard.let_go("go")
    assert yard.enqueue("until", "go").result(timeout=30) == "first"
    yard.write("second")
    with (yard.folder / "program.py").open("a") as program:
        program.write(_ADDED)
    [old] = yard.pids_of("worker-1")
    fleet.send_signal(signal.SIGHUP)
    eventually(lambda: len(yard.pids_of("worker-1")) == 1 and old not in yard.pids_of("worker-1"))
    assert yard.enqueue("until", "go").result(timeout=30) == "second"
    assert yard.app.job(queue="of-its-own")(added).enqueue().result(timeout=30) == "added"
    who = [one.row.who for one in yard.workers() if one.row is not None]
    assert any(
        one and "of-its-own" in (one.queues or ()) and "added" in (one.types or ()) for one in who
    )
    (yard.folder / "program.py").write_text("import nothing_of_that_name\n")
    fleet.send_signal(signal.SIGHUP)
    eventually(lambda: "not used" in yard.log(fleet))
    assert "nothing_of_that_name" in yard.log(fleet)
    assert yard.enqueue("until", "go").result(timeout=30) == "second"


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [False, True])
def test_who_falls_while_the_program_is_broken_is_not_gone_for_good(
    yard: Yard, by_hand: bool
) -> None:
    """W-35: somebody writes it anew, file by file; a reload or an operator fills the slots."""
    fleet = yard.start("--workers", "2")
    (yard.folder / "program.py").write_text("import nothing_of_that_name\n")
    for pid in [*yard.pids_of("worker-1"), *yard.pids_of("worker-2")]:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: yard.log(fleet).count("app_broken") >= 4, "nobody tries again")
    yard.write("second")
    if by_hand:
        assert yard.detent("workers", "start", "worker-1") == "worker-1: start\n"
        assert yard.detent("workers", "start") == "all: start\n"
    else:
        fleet.send_signal(signal.SIGHUP)
    eventually(lambda: yard.states() == {"worker-1": "Running", "worker-2": "Running"})
    yard.let_go("go")
    assert yard.enqueue("until", "go").result(timeout=30) == "second"


@pytest.mark.slow
def test_a_slot_of_a_fleet_that_has_ended_is_not_waited_for(yard: Yard) -> None:
    fleet = yard.start()
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(30) == 0
    assert "has ended" in yard.detent("workers", "start", "worker-1", code=1)
    assert "no workers" in yard.detent("workers", "start")


@pytest.mark.slow
def test_workers_log_failures_always_and_ends_where_the_level_asks(yard: Yard) -> None:
    def lines(*options: str) -> list[str]:
        """What a worker says of one job that fails and of one that does not."""
        (yard.marks / "now").touch()
        (yard.marks / "now.fails").touch()
        fleet = yard.start(*options)
        for name, told in (("timed", "now"), ("quick", 1)):
            yard.enqueue(name, told).result(timeout=30)
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(30) == 0
        text = (yard.folder / ".detent" / options[-1] / "logs" / "worker-1.log").read_text()
        return [line for line in text.splitlines() if "detent.jobs" in line]

    [failed] = lines("--name", "usual")
    assert failed.startswith("ERROR detent.jobs: job ")
    assert failed.endswith(" (timed) failed, attempt 1: ValueError: now")
    told = [json.loads(line) for line in lines("--json-logs", "--log-level", "INFO", "--name", "b")]
    assert [one["severity"] for one in told] == ["ERROR", "INFO", "INFO"]
    assert "ValueError: now" in told[0]["exception"]


def test_a_level_that_there_is_not_is_refused(yard: Yard) -> None:
    yard.environment["DETENT_LOG_LEVEL"] = "loud"
    fleet = yard.begin()
    assert fleet.wait(60) == 2
    assert "'loud' is not one of" in yard.log(fleet)


def test_a_program_that_cannot_be_imported_stops_the_start(yard: Yard) -> None:
    (yard.folder / "program.py").write_text("import nothing_of_that_name\n")
    told = yard.detent("worker", "program.py", code=2)
    assert "nothing_of_that_name" in told
    assert "app_broken" in told
