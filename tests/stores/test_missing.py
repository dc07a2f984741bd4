"""Packages that not everybody needs: who needs one is told which, and how to get it."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
"""
MIGRATE = """
sys.argv = ["detent", "migrate", "--store", "postgres://localhost/none"]
from detent.cli import main
main()
"""
OPENED = """
from detent import stores
stores.open("postgresql+psycopg://localhost/none")
"""
TASKS = "import detent.frameworks.django_tasks"
TASKLESS = ("django.tasks", "django_tasks")


def _run(missing: Sequence[str], program: str) -> "subprocess.CompletedProcess[str]":
    whole = WITHOUT.format(missing=missing) + program
    command = [sys.executable, "-c", whole]
    return subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603


def test_a_command_says_which_extra_brings_the_driver() -> None:
    done = _run(["asyncpg"], MIGRATE)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "asyncpg" in line
    assert line.endswith("pip install 'detent[postgres]' [package_missing].")


@pytest.mark.parametrize(
    ("missing", "program", "cure"),
    [
        (("asyncpg",), OPENED, "pip install 'detent[postgres]'"),
        (TASKLESS, TASKS, "pip install django-tasks"),
        (("django", *TASKLESS), TASKS, "pip install django-tasks"),
    ],
)
def test_a_program_is_told_what_to_install(missing: Sequence[str], program: str, cure: str) -> None:
    done = _run(missing, program)
    assert "PackageMissing: " in done.stderr.splitlines()[-1]
    assert cure in done.stderr.splitlines()[-1]
