"""What a fleet does when its workers cannot hear it, or when it is told things at a bad moment."""

from __future__ import annotations

import os
import signal
import sqlite3
from functools import partial

import pytest

from detent.host import name_of, state_of
from tests.fleet.yard import Yard
from tests.waiting import eventually


@pytest.mark.slow
def test_a_handler_that_blocks_its_loop_keeps_nobody_from_a_drain(yard: Yard) -> None:
    wall = yard.enqueue("block", "wall")
    fleet = yard.start("--grace", "8s")
    eventually(lambda: yard.begun("wall"))
    fleet.send_signal(signal.SIGTERM)
    eventually(lambda: yard.states() == {"worker-1": "Stopping"})
    late = yard.enqueue("quick", 1)
    assert fleet.wait(60) == 0, yard.log(fleet)
    assert [event.name for event in wall.history()][-2:] == ["hand_back", "due"]
    assert [event.name for event in late.history()] == ["enqueue"]
    assert yard.states(gone=True) == {"worker-1": "Stopped"}


@pytest.mark.slow
def test_who_holds_up_the_loop_for_too_long_goes_on_in_a_process_of_its_own(yard: Yard) -> None:
    yard.start("--stall", "5s")
    beside = yard.enqueue("until", "beside")
    eventually(lambda: yard.begun("beside"))
    wall = yard.enqueue("block", "wall")
    eventually(lambda: len(yard.begun("wall")) == 2, "it is not given up")
    first, second = yard.begun("wall")
    assert yard.enqueue("quick", 1).result(timeout=60) == 1, "it holds nobody up any more"
    assert second not in yard.pids_of("worker-1")
    eventually(lambda: first not in yard.pids_of("worker-1"), "it is not replaced")
    yard.let_go("wall")
    yard.let_go("beside")
    assert beside.result(timeout=60) == "first"
    eventually(lambda: wall.status().state == "completed")
    lost = next(event for event in wall.history() if event.name == "lose")
    assert "held up the loop of its worker for 5 s" in (lost.reason or "")
    assert [event.name for event in beside.history()].count("lose") == 0


@pytest.mark.slow
def test_who_cannot_hear_that_its_lease_is_over_is_killed_before_that(yard: Yard) -> None:
    yard.enqueue("hog", "hog")
    yard.start()
    [pid] = eventually(lambda: yard.begun("hog"))
    other = sqlite3.connect(yard.folder / "detent.db", timeout=60, isolation_level=None)
    try:
        # Whoever holds the file keeps every beat from being written. The worker itself may: then
        # it was about to write when the hog began, and the file is ours when it was killed.
        other.execute("BEGIN EXCLUSIVE")
        eventually(lambda: not name_of(pid), "it goes on without a lease")
    finally:
        other.close()


@pytest.mark.slow
def test_the_jobs_of_a_worker_that_had_to_be_killed_wait_for_nobody(yard: Yard) -> None:
    job = yard.enqueue("hog", "hog")
    fleet = yard.start("--grace", "1s")
    eventually(lambda: yard.begun("hog"))
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0, yard.log(fleet)
    assert yard.states(gone=True) == {"worker-1": "Killed"}
    assert [event.name for event in job.history()][-2:] == ["lose", "due"]


@pytest.mark.slow
def test_operators_are_heard_during_a_drain(yard: Yard) -> None:
    job, other = yard.enqueue("until", "never"), yard.enqueue("until", "other")
    fleet = yard.start("--grace", "1h")
    eventually(lambda: yard.begun("never") and yard.begun("other"))
    fleet.send_signal(signal.SIGTERM)
    eventually(lambda: yard.states() == {"worker-1": "Stopping"})
    other.cancel("nobody needs it")
    eventually(lambda: other.status().state == "cancelled")
    assert "stopping" in yard.detent("workers", "list"), "it still tells how it is"
    yard.detent("workers", "stop", "worker-1", "--grace", "4s")
    assert fleet.wait(60) == 0, yard.log(fleet)
    assert [event.name for event in job.history()][-2:] == ["hand_back", "due"]


@pytest.mark.slow
def test_a_signal_of_somebody_else_drains_a_worker_and_is_seen(yard: Yard) -> None:
    job = yard.enqueue("until", "go")
    yard.start()
    [pid] = eventually(lambda: yard.begun("go"))
    os.kill(pid, signal.SIGTERM)
    yard.let_go("go")
    assert job.result(timeout=30) == "first"
    eventually(lambda: yard.states(gone=True) == {"worker-1": "Stopped"})
    [gone] = yard.workers(gone=True)
    assert gone.instance is not None
    assert gone.instance.cause == "external_signal"
    eventually(lambda: yard.pids_of("worker-1") not in ([], [pid]), "the slot is filled again")


@pytest.mark.slow
def test_a_start_can_be_called_off(yard: Yard) -> None:
    slow = f"""
import os, pathlib, time
if "LIFECYCLE_INSTANCE_ID" in os.environ:
    pathlib.Path({str(yard.marks / "slow.begun")!r}).write_text(str(os.getpid()))
    time.sleep(3600)
"""
    path = yard.folder / "program.py"
    path.write_text(slow + path.read_text())
    fleet = yard.begin()
    eventually(lambda: yard.begun("slow"))
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0, yard.log(fleet)
    assert yard.processes() == []


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--slots", "0", "bad_option"),
        ("--workers", "0", "bad_option"),
        ("--name", "../elsewhere", "bad_option"),
        ("--queue", "", "name_too_long"),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error_in_one_line(
    yard: Yard, option: str, value: str, code: str
) -> None:
    fleet = yard.begin(option, value)
    assert fleet.wait(60) == 2
    assert yard.log(fleet).startswith("Error: ")
    assert yard.log(fleet).endswith(f"[{code}].\n")


@pytest.mark.slow
def test_a_worker_whose_threads_are_stuck_is_relieved(yard: Yard) -> None:
    wall = yard.enqueue("stubborn", "wall")
    yard.start("--sync-slots", "1")
    [pid] = eventually(lambda: yard.begun("wall"))
    wall.cancel()
    again = yard.enqueue("stubborn", "more")
    eventually(lambda: yard.begun("more"), "nobody takes the place of the stuck one")
    assert yard.begun("more") != [pid]
    assert wall.status().cause == "abandoned"
    yard.let_go("more")
    again.result(timeout=30)


@pytest.mark.slow
def test_what_blocks_the_loop_beyond_its_time_is_not_the_end_of_its_worker(yard: Yard) -> None:
    wall = yard.enqueue("endless", "wall")
    yard.start()
    [pid] = eventually(lambda: yard.begun("wall"))
    jobs = [yard.enqueue("quick", number) for number in range(20)]
    assert [job.result(timeout=60) for job in jobs] == list(range(20))
    assert yard.pids_of("worker-1") != [pid]
    assert wall.status().cause == "exhausted"
    assert "lose" not in {event.name for job in jobs for event in job.history()}


@pytest.mark.slow
def test_a_fleet_whose_store_was_deleted_says_so_and_ends(yard: Yard) -> None:
    fleet = yard.start("--grace", "1s")
    for path in yard.folder.glob("detent.db*"):
        path.unlink()
    assert fleet.wait(60) == 1
    assert "was deleted or replaced" in yard.log(fleet)
    eventually(lambda: yard.processes() == [])


@pytest.mark.slow
def test_a_handler_that_breaks_the_loop_of_all_is_survived(yard: Yard) -> None:
    yard.start()
    job = yard.enqueue("call_off")
    assert job.result(timeout=60) == "all are called off", "alone it may do what it wants"
    assert [event.name for event in job.history()].count("lose") == 1
    assert yard.enqueue("quick", 1).result(timeout=60) == 1


@pytest.mark.slow
def test_the_start_of_a_process_is_not_the_time_of_a_job(yard: Yard) -> None:
    yard.let_go("slow")
    yard.start()
    assert yard.enqueue("brief").result(timeout=60) == "in time"


@pytest.mark.slow
def test_what_one_handler_leaves_in_the_loop_costs_the_others_nothing(yard: Yard) -> None:
    yard.start()
    beside = yard.enqueue("until", "beside")
    [pid] = eventually(lambda: yard.begun("beside"))
    assert yard.enqueue("quits").result(timeout=60) == "all is over"
    for name in ("splits", "splits_thread"):
        copy = yard.enqueue(name, name).result(timeout=60)
        assert set(eventually(partial(yard.begun, name))) <= {pid, copy}
        eventually(partial(_is_over, copy), "the copy goes on as a worker")
    yard.let_go("beside")
    assert beside.result(timeout=60) == "first"
    assert [event.name for event in beside.history()] == ["enqueue", "claim", "complete"]


def _is_over(pid: int) -> bool:
    return state_of(pid) in (None, "Z")


@pytest.mark.slow
def test_a_job_that_cannot_even_begin_ends(yard: Yard) -> None:
    yard.start()
    assert yard.enqueue("spoils").result(timeout=60) == "spoiled"
    jobs = [yard.enqueue("idle"), yard.enqueue("idle")]
    eventually(lambda: {one.status().state for one in jobs} == {"discarded"}, "they are held")
    assert {one.status().error_message for one in jobs} == {"no tasks today"}


@pytest.mark.slow
def test_a_program_that_goes_elsewhere_is_found_again(yard: Yard) -> None:
    """While it is imported, by supervisor and workers: what they start begins at home."""
    with (yard.folder / "program.py").open("a") as file:
        file.write('\nos.chdir("/")\n')
    job = yard.enqueue("brief")
    yard.start()
    assert job.result(timeout=30) == "in time"
    assert (yard.folder / ".detent" / "workers" / "journal.sqlite").exists()
