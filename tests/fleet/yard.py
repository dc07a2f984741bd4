"""Fleets as they really run: `detent worker` in processes of their own, and what is seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from detent import Detent, Handle
from detent.engine.workers import Listed
from detent.host import name_of, pids, state_of
from detent.lifecycle.event import Event
from detent.stores.api import Fed
from tests.waiting import eventually

T = TypeVar("T")
PATIENCE_S = 60.0
_HERE = Path(__file__).parent
_MARK = "DETENT_TEST_YARD"


def outlast(seconds: float) -> None:
    """Come back when so much time has passed: for leases, which nothing but time ends."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until, patience_s=seconds + PATIENCE_S)


def slot_of(one: Listed) -> str:
    """Where it stands."""
    if one.instance is not None:
        return one.instance.slot
    return one.row.who.slot if one.row is not None and one.row.who is not None else ""


class Yard:
    """A folder with a program, its store, and fleets that are started in it."""

    def __init__(self, folder: Path, url: str, program: str = "program.txt") -> None:
        self.folder = folder
        self.url = url
        self._program = _HERE / program
        self._mark = str(uuid4())
        self.marks = folder / "marks"
        self.marks.mkdir()
        self._fleets: list[subprocess.Popen[bytes]] = []
        self.environment: dict[str, str] = {}
        """What fleets get to know besides."""
        self.write("first")
        self.app = self._app()

    def write(self, version: str) -> None:
        """The program, as its author has it now."""
        text = self._program.read_text().format(
            url=self.url, marks=str(self.marks), version=version
        )
        (self.folder / "program.py").write_text(text)

    def _app(self) -> Detent:
        """The same jobs for whoever enqueues them here."""
        space: dict[str, Any] = {}
        exec((self.folder / "program.py").read_text(), space)  # noqa: S102 - it is ours
        app: Detent = space["app"]
        return app

    def enqueue(self, name: str, *args: object) -> Handle[Any]:
        return self.app.jobs[name].enqueue(*args)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """A fleet that is up: each of its workers has said that it is ready."""
        fleet = self.begin(*options)
        eventually(lambda: self.is_up(fleet), "the fleet does not come up")
        return fleet

    def begin(
        self, *options: str, verb: str = "worker", program: str = "program.py"
    ) -> subprocess.Popen[bytes]:
        """A fleet that is on its way."""
        command = [sys.executable, "-m", "detent", verb, program, *options]
        log = (self.folder / f"fleet-{len(self._fleets)}.log").open("wb")
        with log:
            fleet = subprocess.Popen(  # noqa: S603
                command,
                cwd=self.folder,
                stderr=log,
                stdout=log,
                env={**os.environ, **self.environment, _MARK: self._mark},
            )
        self._fleets.append(fleet)
        return fleet

    def is_up(self, fleet: subprocess.Popen[bytes]) -> bool:
        assert fleet.poll() is None, self.log(fleet)
        return "for the jobs of" in self.log(fleet)

    def log(self, fleet: subprocess.Popen[bytes]) -> str:
        """What it said."""
        number = self._fleets.index(fleet)
        return (self.folder / f"fleet-{number}.log").read_text()

    def detent(self, *words: str, code: int = 0) -> str:
        """What a command answers."""
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "detent", *words, "--store", self.url],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def workers(self, *, gone: bool = False) -> list[Listed]:
        """Worker processes, as the store knows them."""
        found = self.app.bridge.run(self._listed(gone=gone))
        return [one for one in found if slot_of(one).startswith("worker-")]

    async def _listed(self, *, gone: bool) -> list[Listed]:
        engine = await self.app.engine()
        return await engine.workers.listed(gone=gone)

    def states(self, *, gone: bool = False) -> dict[str, str]:
        """In which state the worker of each slot is."""
        return {slot_of(one): one.state for one in self.workers(gone=gone)}

    def pids_of(self, slot: str) -> list[int]:
        """The processes in that slot now: while one is replaced there are two."""
        rows = [one.row for one in self.workers() if slot_of(one) == slot]
        processes = [row.who.process for row in rows if row is not None and row.who is not None]
        return [process.pid for process in processes if process is not None]

    def begun(self, name: str) -> list[int]:
        """The processes in which a job of that mark was begun."""
        path = self.marks / f"{name}.begun"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def let_go(self, name: str) -> None:
        (self.marks / name).touch()

    def diary(self) -> list[list[str]]:
        """What runs wrote about themselves, in the order in which they did."""
        path = self.marks / "diary"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def events_of(self, handles: Sequence[Handle[Any]]) -> list[list[Event]]:
        """The history of each of these jobs."""
        return self.app.bridge.run(self._events([("", one.id) for one in handles]))

    async def _events(self, keys: list[tuple[str, str]]) -> list[list[Event]]:
        store = (await self.app.engine()).store
        found: list[Sequence[Fed]] = []
        for at in range(0, len(keys), 200):
            found += await store.histories(keys[at : at + 200])
        return [[fed.event for fed in history] for history in found]

    def counts(self) -> Counter[str]:
        """How many jobs are in which state."""
        return self.app.bridge.run(self._counts())

    async def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for one in await (await self.app.engine()).store.counts():
            counts[one.state] += one.count
        return counts

    def processes(self) -> list[int]:
        """Everything that runs in this folder, whoever started it."""
        return [pid for pid in pids() if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            where = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - a link of the kernel
        except OSError:
            return False
        return where == str(self.folder) and state_of(pid) not in ("Z", None) and bool(name_of(pid))

    def has_marked(self, pid: int) -> bool:
        """Whether that process descends from a fleet of ours, told by what it has inherited."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{_MARK}={self._mark}".encode() in environment.split(b"\0")

    def close(self) -> None:
        """Kill whatever is left, and let the store go."""
        for fleet in self._fleets:
            fleet.kill()
            fleet.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.app.close()
