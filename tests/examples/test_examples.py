"""Every example is short, runs, and prints what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres.server import databases

ROOT = Path(__file__).resolve().parents[2]
ALL = sorted((ROOT / "examples").glob("*.py"))
# Needs a container runtime: it is checked by mypy and ruff, and not executed.
UNTESTED = "supervise_container.py"
SCRIPTS = [path for path in ALL if not path.name.startswith("test_") and path.name != UNTESTED]
LINES_MAX = 40


def environment(path: Path, folder: Path) -> dict[str, str]:
    """Where the example's database is, if it asks for one."""
    if "DATABASE_URL" not in path.read_text("utf-8"):
        return {}
    return {"DATABASE_URL": databases().of(folder)}


def run(*command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own files
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **more},
        text=True,
        capture_output=True,
        check=False,
        timeout=1_200,
    )


def promised(path: Path) -> str:
    """The last comment of the example: what it prints."""
    _, _, told = path.read_text("utf-8").partition("# It prints:\n")
    return "".join(f"{line.removeprefix('#   ')}\n" for line in told.splitlines())


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    done = run("-W", "error", str(path), folder=tmp_path, **environment(path, tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == promised(path)
    assert done.stdout


def test_the_example_that_needs_a_container_runtime_can_be_imported() -> None:
    done = run("-W", "error", "-c", "import supervise_container", folder=ROOT / "examples")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_the_example_of_tests_is_green(tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "test_shop.py")
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", example, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
