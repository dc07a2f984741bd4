"""Who is measured by `bench.worker`: each fills a store, pings it, and has worker processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench import processes
from bench.engine_rivals import HOME, PACKAGES

__all__ = ["CREWS", "Crew", "Drained", "drained", "pinged"]

_ROOT = Path(__file__).resolve().parents[1]
_STAMP = struct.Struct("<qq")
_GLANCE_S = 0.02
_UP_S = 60.0
NEWER = HOME.with_name("rivals-newer")
SLOTS = 2_000
"""Several times what one claim takes: some batches run while the store works on others."""


class Crew(msgspec.Struct, frozen=True):
    """A library on a database. `program` answers to fill, ping and perhaps to work."""

    name: str
    database: str
    program: tuple[str, ...]
    is_ours: bool = False

    def ask(self, what: str, url: str, jobs: int) -> Any:
        """What the program answers."""
        command = [*self.program, what, url, str(jobs)]
        done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)  # noqa: S603
        return json.loads(done.stdout.splitlines()[-1])

    def commands(self, url: str, workers: int, folder: Path) -> list[list[str]]:
        """What starts so many worker processes: ours stand under one supervisor."""
        if not self.is_ours:
            return [[*self.program, "work", url, "0"] for _ in range(workers)]
        detent = [str(Path(sys.executable).with_name("detent")), "worker", "bench/noop.py"]
        options = ["--workers", str(workers), "--slots", str(SLOTS), "--store", url]
        return [[*detent, *options, "--state-dir", str(folder / "state")]]


class Drained(msgspec.Struct, frozen=True):
    """What became of a backlog. Rates count from the first start of a handler to the last."""

    jobs: int
    seconds: float
    cpu_us: float
    server_us: float
    rss_mb: float
    lost: int
    doubled: int

    @property
    def per_second(self) -> float:
        return (self.jobs - 1) / self.seconds


def crews() -> tuple[Crew, ...]:
    """Ours and theirs; theirs live in environments of their own, made once."""
    program = str(Path(__file__).with_name("worker_rivals.py"))
    ours = (sys.executable, "-m", "bench.noop")
    theirs = (str(HOME / "bin" / "python"), program)
    newer = (Crew("Oban", "postgresql", (str(NEWER / "bin" / "python"), program, "oban")),)
    return (
        Crew("Detent", "sqlite", ours, is_ours=True),
        Crew("Huey", "sqlite", (*theirs, "huey")),
        Crew("Detent", "postgresql", ours, is_ours=True),
        Crew("PgQueuer", "postgresql", (*theirs, "pgqueuer")),
        *(newer if _newer_python() else ()),
    )


def _newer_python() -> str | None:
    """One that Oban runs on, if there is any."""
    if sys.version_info >= (3, 12):
        return sys.executable
    found = (shutil.which(name) for name in ("python3.14", "python3.13", "python3.12"))
    return next((one for one in found if one is not None and _runs(one)), None)


def _runs(python: str) -> bool:
    """Some of them only stand for what is not installed."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603


CREWS = crews()


def need_rivals() -> None:
    """Install them, once."""
    _need_environment(HOME, sys.executable, PACKAGES)
    newer = _newer_python()
    if newer is not None:
        _need_environment(NEWER, newer, ("oban", "uvloop"))


def _need_environment(home: Path, python: str, packages: Sequence[str]) -> None:
    if not (home / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", str(home)], check=True)  # noqa: S603
        command = [str(home / "bin" / "python"), "-m", "pip", "-q", "install", *packages]
        subprocess.run(command, check=True)  # noqa: S603


@contextmanager
def _at_work(commands: Sequence[list[str]], log: Path) -> Iterator[list[int]]:
    """The processes, which are asked to end and waited for."""
    environment = {**os.environ, "BENCH_LOG": str(log)}
    with log.with_suffix(".said").open("wb") as said:
        begun = [
            subprocess.Popen(one, cwd=_ROOT, env=environment, stdout=said, stderr=said)  # noqa: S603
            for one in commands
        ]
        try:
            yield [one.pid for one in begun]
        finally:
            for one in begun:
                one.send_signal(signal.SIGTERM)
            for one in begun:
                one.wait(_UP_S)


def drained(
    crew: Crew, url: str, asked: tuple[int, int], folder: Path, server: int | None
) -> Drained:
    """Have so many jobs drained by so many workers, and count what ran by what it left behind."""
    jobs, workers = asked
    log = folder / "ran"
    log.touch()
    with _at_work(crew.commands(url, workers, folder), log) as pids:
        _until(log, 1)
        begun = [processes.cpu_s(one) for one in pids], _server_s(server), _ran(log)
        _until(log, jobs)
        used = sum(processes.cpu_s(one) for one in pids) - sum(begun[0])
        # Of a few jobs all may have run before anybody looked.
        rest, memory = max(jobs - begun[2], 1), max(processes.rss_mb(one) for one in pids)
        served = _server_s(server) - begun[1]
    numbers, times = zip(*_STAMP.iter_unpack(log.read_bytes()), strict=True)
    log.unlink()
    return Drained(
        jobs=jobs,
        seconds=(max(times) - min(times)) / 1e9,
        cpu_us=used * 1e6 / rest,
        server_us=served * 1e6 / rest,
        rss_mb=memory,
        lost=jobs - len(set(numbers)),
        doubled=len(numbers) - len(set(numbers)),
    )


def pinged(crew: Crew, url: str, jobs: int, folder: Path) -> list[float]:
    """Milliseconds from before an enqueue until the handler runs, by a worker that is idle."""
    log = folder / "ran"
    log.touch()
    crew.ask("fill", url, 1)
    with _at_work(crew.commands(url, 1, folder), log):
        _until(log, 1)
        begun = crew.ask("ping", url, jobs)
        _until(log, 1 + jobs)
    ran = dict(list(_STAMP.iter_unpack(log.read_bytes()))[1:])
    log.unlink()
    return sorted((ran[number] - at) / 1e6 for number, at in enumerate(begun))


def _server_s(server: int | None) -> float:
    return 0.0 if server is None else processes.cpu_s(server)


def _ran(log: Path) -> int:
    return log.stat().st_size // _STAMP.size


def _until(log: Path, jobs: int) -> None:
    """Wait for so many traces; a backlog that does not move for a minute will never end."""
    seen, since = 0, time.monotonic()
    while (ran := _ran(log)) < jobs:
        if ran > seen:
            seen, since = ran, time.monotonic()
        if time.monotonic() - since > _UP_S:
            said = log.with_suffix(".said").read_text("utf-8")[-2_000:]
            raise RuntimeError(f"{ran} of {jobs} jobs ran, and nothing moves: {said}")
        time.sleep(_GLANCE_S)
