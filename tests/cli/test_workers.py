"""`detent workers logs`, which needs no store, and how the commands on fleets end."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Protocol, TypeVar
from xml.etree import ElementTree as ET

import pytest

from detent import Detent, stores
from detent.cli.places import need_one_store
from detent.cli.workerlogs import Followed
from detent.engine.engine import Engine
from detent.lifecycle.worker import Birth
from detent.runtime.process.rotation import Files
from detent.runtime.supervisor.function import FunctionBody, WorkerContext
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.tree import Tree
from detent.stores.api import Who, WorkerRow
from tests.cli.commands import detent
from tests.cli.test_lifecycle import read_to_the_end
from tests.waiting import eventually

C = TypeVar("C", Files, Followed)
_LONG_US = 3_600_000_000


class Opened(Protocol):
    """Sees to it that something is closed in the end."""

    def __call__(self, one: C) -> C: ...


@pytest.fixture
def opened() -> Iterator[Opened]:
    with ExitStack() as stack:

        def opened(one: C) -> C:
            stack.callback(one.close)
            return one

        yield opened


def write(folder: Path, fleet: str, slot: str, text: str) -> None:
    files = Files(folder / fleet / "logs", slot)
    files.write(text.encode())
    files.close()


def test_workers_need_a_store_that_is_there_for_several_processes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text('from detent import Detent\napp = Detent("memory:")\n')
    done = detent("worker", str(program), "--state-dir", tmp_path)
    assert (done.code, done.complained[-20:]) == (2, "[unsupported_store].")
    assert {one.name for one in tmp_path.iterdir()} <= {program.name, "__pycache__"}


def test_the_only_fleet_is_found_and_several_must_be_named(tmp_path: Path) -> None:
    write(tmp_path, "workers", "worker-1", "one\ntwo\nthree\n")
    write(tmp_path, "mail", "worker-2", "other\n")
    where = ("--state-dir", tmp_path)
    assert detent("workers", "logs", "worker-1", "-n", "2", *where).said == "two\nthree\n"
    assert detent("workers", "logs", "worker-2", *where).said == "other\n"
    none = detent("workers", "logs", "worker-3", *where)
    assert (none.code, none.said) == (1, "")
    assert "has nothing of 'worker-3'" in none.complained
    write(tmp_path, "mail", "worker-1", "mine\n")
    both = detent("workers", "logs", "worker-1", *where)
    assert both.code == 1
    assert "one of mail, workers" in both.complained
    assert detent("workers", "logs", "worker-1", "--name", "mail", *where).said == "mine\n"


def test_what_a_job_prints_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    write(tmp_path, "workers", "worker-1", "\x1b[2Jgone\n")
    said = detent("workers", "logs", "worker-1", "--state-dir", tmp_path).said
    assert said == "\\x1b[2Jgone\n"


def test_lines_are_found_in_older_files_and_followed_through_every_rotation(
    tmp_path: Path, opened: Opened
) -> None:
    files = opened(Files(tmp_path, "w", file_bytes=20))
    for number in range(6):
        files.write(b"line %d\n" % number)
    assert len(files.existing()) > 1
    followed = opened(Followed(files))
    assert followed.last(4) == "line 2\nline 3\nline 4\nline 5\n"
    assert followed.more() == ""
    for number in range(6, 13):
        files.write(b"line %d\n" % number)
    files.write(b"unfin")
    assert followed.more() == "".join(f"line {number}\n" for number in range(6, 13))
    files.write(b"ished\n")
    assert followed.more() == "unfinished\n"
    assert followed.last(0) == ""


def test_what_was_thrown_away_before_it_was_read_is_passed_over(
    tmp_path: Path, opened: Opened
) -> None:
    files = opened(Files(tmp_path, "w", file_bytes=10, files=3))
    files.write(b"line 0\n")
    followed = opened(Followed(files))
    assert followed.last(9) == "line 0\n"
    for number in range(1, 9):
        files.write(b"line %d\n" % number)
    assert followed.more() == "line 6\nline 7\nline 8\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("worker", "missing.py"), "app_not_found"),
        (("up", "missing.py"), "app_not_found"),
        (("worker", "missing.py", "--workers", "0"), "bad_option"),
        (("worker",), "Missing argument"),
    ],
)
def test_what_cannot_be_started_ends_with_2(words: tuple[str, ...], why: str) -> None:
    done = detent(*words)
    assert done.code == 2
    assert why in done.complained


@pytest.mark.parametrize("verb", ["worker", "up", "serve"])
def test_a_program_that_names_another_store_is_refused(tmp_path: Path, verb: str) -> None:
    own, other = "postgresql://ann:s3cret@db/shop", "postgresql://ann:t0psecret@db/other"
    program = tmp_path / "shop.py"
    program.write_text(f"from detent import Detent\napp = Detent({own!r})\n")
    told = ("serve", "--app", program) if verb == "serve" else (verb, program)
    for done in (detent(*told, "--store", other), detent(*told, DETENT_STORE=other)):
        assert done.code == 2
        assert "jobs in postgresql://ann:***@db/shop, and" in done.complained
        assert "is to use postgresql://ann:***@db/other: leave" in done.complained
        assert "[bad_option]" in done.complained
        assert "s3cret" not in done.complained
        assert "t0psecret" not in done.complained


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (None, "sqlite:shop.db"),
        ("sqlite:shop.db", None),
        ("sqlite:shop.db", f"sqlite://{Path.cwd()}/shop.db"),
        (lambda: "memory:", "memory:"),
    ],
)
def test_a_store_that_is_named_twice_is_one(own: str | None, told: str | None) -> None:
    need_one_store(Detent(own), told)


def test_a_command_waits_for_the_modules_of_no_other() -> None:
    code = (
        "import sys, detent.cli.application as a; a.application_of(['lifecycle'], pretty=False);"
        "print([name for name in sys.modules if name.startswith('detent.app')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)  # noqa: S603
    assert done.stdout == "[]\n"


async def killed(journal: Journal) -> None:
    """An instance of which the stacks are kept."""

    async def nothing(_: WorkerContext) -> None: ...

    Live(Tree(journal), Birth("i-1", "worker-1"), FunctionBody(nothing), "function")
    journal.keep_dump("i-1", "Thread 1:\n  in handler\n")


def test_where_a_worker_stood_can_be_read_while_its_supervisor_runs(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "workers")) as journal:
        asyncio.run(killed(journal))
        for which in ("worker-1", "i-"):
            said = detent("workers", "stacks", which, "--state-dir", tmp_path).said
            assert said == "i-1\nThread 1:\n  in handler\n"
    none = detent("workers", "stacks", "worker-2", "--state-dir", tmp_path)
    assert (none.code, none.said) == (1, "")
    assert "Nothing is kept of 'worker-2'" in none.complained


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store that knows three workers: two of one fleet, and one of nobody that fell."""
    url = f"sqlite:{tmp_path}/detent.db"

    async def tell() -> None:
        async with stores.open(url) as store:
            now = store.now()
            kept = [
                Who(supervisor="s1", started_at=now, slot=f"worker-{number}") for number in (1, 2)
            ]
            rows = [
                *(WorkerRow(f"abc-{who.slot[-1]}", now + _LONG_US, who=who) for who in kept),
                WorkerRow("xyz", now, who=Who(embedded=True, started_at=now)),
            ]
            await store.beat(rows, now=now)
            await store.declare_lost(["xyz"], now=now)

    asyncio.run(tell())
    return url


def test_workers_whose_history_nobody_told_are_listed(store: str) -> None:
    """What they are called is no state of the lifecycle; that was a traceback."""
    alive = detent("workers", "list", "--store", store)
    assert (alive.code, alive.said.count(" alive ")) == (0, 2)
    gone = detent("workers", "list", "--gone", "--store", store)
    assert (gone.code, gone.said.count(" gone ")) == (0, 1)
    assert "worker-2 alive abc-2" in detent("workers", "tree", "--store", store).said


def test_workers_are_drawn(store: str) -> None:
    mermaid = detent("workers", "tree", "--format", "mermaid", "--store", store)
    assert (mermaid.code, mermaid.said.splitlines()[0]) == (0, "graph TD")
    assert "worker-2" in mermaid.said
    svg = detent("workers", "tree", "--format", "svg", "--store", store).said
    boxes = [one for one in ET.fromstring(svg).iter() if "data-node" in one.attrib]  # noqa: S314 - our own text
    assert ["".join(one.itertext()).count("alive") > 0 for one in boxes].count(True) == 2
    assert (svg.count('class="edge"'), svg.count(">worker-2<")) == (2, 1)
    both = detent("workers", "tree", "--format", "svg", "--json", "--store", store)
    assert (both.code, both.said) == (2, "")


@pytest.mark.parametrize(
    ("verb", "name", "code", "why"),
    [
        ("kill", "", 1, "unknown_worker"),
        ("start", "", 1, "unknown_worker"),
        ("stop", "abc", 2, "ambiguous_id"),
    ],
)
def test_nobody_is_told_anything_by_chance(
    store: str, verb: str, name: str, code: int, why: str
) -> None:
    """A variable that is empty, or a beginning too short, meant everybody."""
    done = detent("workers", verb, name, "--wait", "1s", "--store", store)
    assert (done.code, done.said) == (code, "")
    assert why in done.complained


@pytest.mark.parametrize("verb", ["stop", "restart", "kill"])
def test_a_script_ends_all_workers_only_if_it_says_so(store: str, verb: str) -> None:
    told = ("workers", verb, "--wait", "1s", "--store", store)
    done = detent(*told)
    assert (done.code, done.said) == (2, "")
    assert f"Without a name this would {verb} all workers: 2 of 1 fleet." in done.complained
    assert "[bad_option]" in done.complained
    assert "has not answered" in detent(*told, "--all").complained
    assert detent(*told, "worker-1", "--all").code == 2
    assert "has not answered" in detent("workers", "suspend", *told[2:]).complained


@pytest.mark.parametrize(("answer", "is_told"), [("y", True), ("n", False), ("", False)])
def test_a_person_is_asked_before_all_workers_end(store: str, answer: str, is_told: bool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "detent", "workers", "kill", "--wait", "1s", "--store", store]
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs
    ) as asking:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        said = read_to_the_end(ours)
    assert "This is to kill all workers: 2 of 1 fleet. Go on? [y/N]" in said
    assert asking.returncode == 1
    assert ("has not answered" in said) == is_told


def test_the_beginning_of_one_id_is_enough(store: str) -> None:
    done = detent("workers", "kill", "abc-2", "--wait", "1s", "--store", store)
    assert "worker-2: its supervisor on an unknown host has not answered" in done.complained


def test_whoever_does_not_wait_has_not_said_it(store: str) -> None:
    """Ctrl-C. A supervisor that hears it later must not kill anybody for it."""
    command = [sys.executable, "-m", "detent", "workers", "kill", "worker-1", "--store", store]
    asking = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command
    eventually(lambda: _wishes(store) == 1)
    asking.send_signal(signal.SIGINT)
    assert asking.wait(60) != 0
    assert _wishes(store) == 0


def _wishes(url: str) -> int:
    async def count() -> int:
        async with stores.open(url) as store:
            return len(await Engine(store).directives.waiting("s1"))

    return asyncio.run(count())
