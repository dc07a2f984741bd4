"""Workers that are replaced by others: because a file has changed, or because their time is up."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from detent.app.fleet.reloading import python_files
from tests.fleet.servers import free_port
from tests.fleet.yard import Yard, outlast
from tests.waiting import eventually


@pytest.mark.slow
@pytest.mark.parametrize("is_near", [True, False])
def test_a_changed_program_is_started_anew_wherever_it_is(
    yard: Yard, tmp_path_factory: pytest.TempPathFactory, *, is_near: bool
) -> None:
    folder = yard.folder if is_near else tmp_path_factory.mktemp("elsewhere")
    program = folder / "changing.py"
    program.write_text((yard.folder / "program.py").read_text())
    fleet = yard.begin("--reload", "--no-server", verb="up", program=str(program))
    eventually(lambda: yard.is_up(fleet))
    program.write_text(program.read_text().replace("'first'", "'second'"))
    eventually(lambda: "all workers run the new one" in yard.log(fleet))
    job = yard.enqueue("until", "go")
    yard.let_go("go")
    assert job.result(timeout=30) == "second"
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0


@pytest.mark.slow
def test_a_job_that_runs_holds_up_no_change(yard: Yard) -> None:
    """Each old worker drained before the next was replaced, and no further change was seen."""
    fleet = yard.start("--reload", "--workers", "2", "--grace", "600s")
    jobs = [yard.enqueue("until", f"go-{number}") for number in range(6)]
    begun = eventually(lambda: _all_begun(yard, 6))
    assert begun <= {*yard.pids_of("worker-1"), *yard.pids_of("worker-2")}
    for count, version in enumerate(("second", "third"), start=1):
        yard.write(version)
        eventually(lambda told=count: yard.log(fleet).count("run the new one") == told)  # type: ignore[misc]
    after = yard.enqueue("until", "now")
    yard.let_go("now")
    assert after.result(timeout=30) == "third"
    for number, job in enumerate(jobs):
        yard.let_go(f"go-{number}")
        assert job.result(timeout=30) == "first", "it was left to whom it was running at"
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0


@pytest.mark.slow
def test_a_job_outlasts_the_time_of_its_worker(yard: Yard) -> None:
    """It was handed back at the end of the grace, to a worker whose time would be up as well."""
    fleet = yard.start("--max-jobs", "1", "--grace", "2s")
    job = yard.enqueue("until", "go")
    [first] = eventually(lambda: yard.begun("go"))
    for number in range(2):
        assert yard.enqueue("quick", number).result(timeout=30) == number
    eventually(lambda: len(yard.pids_of("worker-1")) == 2)
    outlast(4)
    yard.let_go("go")
    assert job.result(timeout=30) == "first"
    assert yard.begun("go") == [first]
    assert [event.name for event in job.history()].count("hand_back") == 0
    eventually(lambda: first not in yard.pids_of("worker-1"))
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0


@pytest.mark.slow
def test_whoever_is_named_by_its_id_is_meant(yard: Yard) -> None:
    """The slot was told, and who had just taken it was killed instead."""
    yard.start("--max-jobs", "1", "--grace", "60s")
    yard.enqueue("until", "go")
    [pid] = eventually(lambda: yard.begun("go"))
    assert yard.enqueue("quick", 1).result(timeout=30) == 1
    eventually(lambda: {one.state for one in yard.workers()} == {"Stopping", "Running"})
    [leaving] = [one.id for one in yard.workers() if one.state == "Stopping"]
    [stays] = [one.id for one in yard.workers() if one.state == "Running"]
    assert "on its way out" in yard.detent("workers", "suspend", leaving, code=1)
    assert yard.detent("workers", "kill", leaving) == "worker-1: kill\n"
    eventually(lambda: pid not in yard.pids_of("worker-1"))
    assert [one.id for one in yard.workers()] == [stays]
    assert "unknown_worker" in yard.detent("workers", "kill", leaving, code=1)


@pytest.mark.slow
def test_the_server_knows_the_new_program_too(yard: Yard) -> None:
    """It refused what was declared since; and it listens when that is said."""
    port = free_port()
    fleet = yard.begin("--reload", "--port", str(port), verb="up")
    eventually(lambda: "the server listens at" in yard.log(fleet))
    assert _asked(port, "later") == 400
    program = yard.folder / "program.py"
    program.write_text(f"{program.read_text()}\n\n@app.job\ndef later() -> int:\n    return 1\n")
    eventually(lambda: "all workers run the new one" in yard.log(fleet))
    assert _asked(port, "later") == 202
    program.write_text("broken(")
    eventually(lambda: "stays as it was" in yard.log(fleet))
    assert _asked(port, "later") == 202, "a program that cannot be read costs nobody anything"
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0


def _all_begun(yard: Yard, count: int) -> set[int]:
    begun = [yard.begun(f"go-{number}") for number in range(count)]
    return {pid for some in begun for pid in some} if all(begun) else set()


def _asked(port: int, action: str) -> int:
    body = json.dumps({"action": action, "payload": {}})
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/api/jobs", body, {"Content-Type": "application/json"})
        return connection.getresponse().status


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into, also where tests are run by root."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_only_folders_that_can_be_looked_at_are(open_folder: Path) -> None:
    """The data of a database beside the program ended `--reload`, and links went in circles."""
    (open_folder / "a.py").touch()
    (open_folder / "below").mkdir()
    (open_folder / "below" / "b.py").touch()
    (open_folder / "env").mkdir()
    (open_folder / "env" / "pyvenv.cfg").touch()
    (open_folder / "env" / "c.py").touch()
    (open_folder / "closed").mkdir(mode=0o700)
    (open_folder / "below" / "back").symlink_to(open_folder)
    (open_folder / "knot").symlink_to("knot")
    with _nobody():
        found = list(python_files(open_folder, set()))
    assert found == [open_folder / "a.py", open_folder / "below" / "b.py"]


@contextmanager
def _nobody() -> Iterator[None]:
    """Root may look everywhere."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)
