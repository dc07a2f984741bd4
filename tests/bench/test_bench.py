"""Benchmarks still run: nobody looks at them for weeks, and what they measure moves on meanwhile.

Each is run whole with the smallest sizes. What takes longer than a suite can give is a campaign;
its modules are imported here all the same. Rivals are installed by nobody but a benchmark.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.small import SMALL

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))
QUICK = ("lifecycle", "seal", "stores", "engine sqlite")
SLOW = ("engine postgresql", "worker sqlite")
COMMANDS = {
    "bench.engines --jobs 2 --burst 4 --engines 1": "burst",
    "bench.http --seconds 0.05 --rounds 1 --connections 1": "connections",
    "bench.jobnik --jobs 2": "all is well",
}
"""And a word of what they say at the end."""
_PATIENCE_S = 120


def run(*command: str) -> str:
    """What a program says that ends well, without a warning."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", *command],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def test_every_module_can_be_imported() -> None:
    assert {"http", "engines", "worker_rivals"} <= set(MODULES)
    names = ", ".join(f"bench.{name}" for name in MODULES)
    run("-c", f"import {names}")


@pytest.mark.parametrize("module", ["bench", "bench.engine", "bench.worker"])
def test_it_says_what_it_can_be_asked(module: str) -> None:
    assert f"python -m {module}" in run("-m", module, "--help")


def test_the_quick_ones_run() -> None:
    run(str(ROOT / "tests/bench/small.py"), *QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_the_slow_ones_run(name: str) -> None:
    run(str(ROOT / "tests/bench/small.py"), name)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_those_with_a_server_run(command: str) -> None:
    assert COMMANDS[command] in run("-m", *command.split())


@pytest.mark.campaign
@pytest.mark.parametrize("name", sorted(set(SMALL) - set(QUICK) - set(SLOW)))
def test_the_long_ones_run(name: str) -> None:
    run(str(ROOT / "tests/bench/small.py"), name)
