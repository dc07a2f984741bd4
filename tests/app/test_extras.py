"""Packages that an extra brings: a program without them works, and is told how to get them."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from detent.extras import EXTRAS, has_extra

ROOT = Path(__file__).parents[2]
# What distributions are imported as, where that is another word.
IMPORTED_AS = {"python-socketio": "socketio", "opentelemetry-api": "opentelemetry"}
# Used where it is installed, and asyncio's own loop where it is not.
OPTIONAL = {"uvloop"}

WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
"""
COMMAND = """
sys.argv = ["detent", *{words!r}]
from detent.cli import main
main()
"""
OPENED = """
from detent import stores
stores.open("postgresql+psycopg://localhost/none")
"""
TASKS = "import detent.frameworks.django_tasks"
TASKLESS = ("django.tasks", "django_tasks")
PROGRAM = """
from detent import Detent
app = Detent("{url}")

@app.job
def add(a: int, b: int) -> int:
    return a + b

@app.job(secret=("token",))
def log_in(token: str) -> None: ...
"""
ALL = sorted({package for packages in EXTRAS.values() for package in packages} | OPTIONAL)


def _run(
    missing: Sequence[str], program: str, folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    whole = WITHOUT.format(missing=list(missing)) + program
    command = [sys.executable, "-c", whole]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)  # noqa: S603


def test_the_table_of_extras_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = {}
    for extra, requirements in project["optional-dependencies"].items():
        names = [re.split(r"[\[>=<; ]", one)[0] for one in requirements]
        imported = {IMPORTED_AS.get(name, name).replace("-", "_") for name in names}
        listed[extra] = imported - OPTIONAL
    assert listed.pop("all") == {"detent"}
    assert listed == {extra: set(packages) for extra, packages in EXTRAS.items()}


def test_a_program_without_extras_enqueues_and_works(tmp_path: Path) -> None:
    program = PROGRAM.format(url=f"sqlite:{tmp_path}/jobs.db")
    program += "handle = add.enqueue(1, 2); app.drain(); print(handle.result())"
    done = _run(ALL, program)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("asyncpg", ("migrate", "--store", "postgres://localhost/none"), "postgres"),
        ("uvicorn", ("serve", "--store", "memory:"), "server"),
        ("prometheus_client", ("worker", "app.py", "--metrics", "9100"), "server"),
        ("httptools", ("worker", "app.py", "--server", "http://127.0.0.1:1"), "remote"),
    ],
)
def test_a_command_says_which_extra_it_needs(
    missing: str, words: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(PROGRAM.format(url=f"sqlite:{tmp_path}/jobs.db"))
    done = _run([missing], COMMAND.format(words=words), tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    line = done.stderr.splitlines()[-1]
    assert missing in line
    assert line.endswith(f"pip install 'detent[{extra}]' [package_missing].")


@pytest.mark.parametrize(
    ("missing", "program", "cure"),
    [
        (("asyncpg",), OPENED, "pip install 'detent[postgres]'"),
        (("aiohttp",), "import detent.engine_client", "pip install 'detent[engine]'"),
        (TASKLESS, TASKS, "pip install django-tasks"),
        (("django", *TASKLESS), TASKS, "pip install django-tasks"),
    ],
)
def test_a_program_is_told_what_to_install(missing: Sequence[str], program: str, cure: str) -> None:
    done = _run(missing, program)
    assert "PackageMissing: " in done.stderr.splitlines()[-1]
    assert cure in done.stderr.splitlines()[-1]


def test_a_secret_argument_needs_the_extra_for_secrets(tmp_path: Path) -> None:
    program = PROGRAM.format(url=f"sqlite:{tmp_path}/jobs.db") + "log_in.enqueue('x')"
    done = _run(["cryptography"], program)
    assert "pip install 'detent[secrets]'" in done.stderr.splitlines()[-1]


def test_an_extra_is_there_when_all_of_its_packages_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_extra("server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert not has_extra("server")
