"""The first five minutes, done as the README says, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, TYPED, Block, commands, parse
from tests.waiting import eventually

TITLE = "## The first five minutes"


def told() -> tuple[str, list[str]]:
    """The program, and what is typed after the installation."""
    section = (ROOT / "README.md").read_text("utf-8").split(TITLE)[1].split("\n## ")[0]
    blocks: list[Block] = parse(section, "README.md")
    [program] = [block.text for block in blocks if block.info == "python"]
    consoles = [block for block in blocks if block.info.startswith("console")]
    return program, [command for block in consoles[1:] for command, _ in commands(block)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Terminal:
    """An empty folder with `detent` on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        clean = {k: v for k, v in os.environ.items() if k not in ("DETENT_STORE", "DATABASE_URL")}
        # Others may run the same test at this moment, or something else at the usual port.
        self.environment = {**clean, "PATH": path, "DETENT_PORT": str(free_port())}

    def type(self, command: str) -> str:
        done = subprocess.run(  # noqa: S602 - a line of our own page
            command,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.slow
def test_a_newcomer_sees_a_job_survive_its_worker(tmp_path: Path) -> None:
    program, (up, enqueue, jobs, workers, kill, show) = told()
    assert {up, enqueue, jobs, workers, kill, show} == TYPED
    (tmp_path / "app.py").write_text(program)
    terminal = Terminal(tmp_path)
    log = (tmp_path / "up.log").open("w")
    with (
        log,
        subprocess.Popen(  # noqa: S603 - the same
            up.split(), cwd=tmp_path, env=terminal.environment, stderr=log, stdout=log
        ) as fleet,
    ):
        try:
            eventually(lambda: "for the jobs of" in (tmp_path / "up.log").read_text())
            job = terminal.type(enqueue).strip()
            eventually(lambda: re.search(f"{job} +report +active", terminal.type(jobs)))
            [line] = [one for one in terminal.type(workers).splitlines() if " worker-1 " in one]
            pid = line.split()[3]
            terminal.type(kill.replace("PID", pid))
            ask = show.replace("ID", job)
            eventually(lambda: "Active on attempt 2 after 1 loss" in terminal.type(ask))
            shown = terminal.type(ask)
            assert f"(pid {pid} on " in shown
            assert "was ended by signal 9" in shown
            assert "attempt 1: lease_lost worker " in shown
            assert "all is well" in terminal.type("detent verify")
        finally:
            fleet.send_signal(signal.SIGINT)
        assert fleet.wait(60) == 0
