"""What `detent up` and `detent worker` say about the program that they import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.cli import importing
from detent.errors import AppBroken, AppNotFound

_APP = "from detent import Detent\napp = Detent()\n"
_JOB = "@app.job\ndef hi() -> int:\n    return 1\n"
_WAITS = """
import logging, threading

told = threading.Event()

class Handler(logging.Handler):
    def emit(self, record):
        told.set()

logging.getLogger("detent.fleet").addHandler(Handler())
assert told.wait(30)
"""


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder to import from; nothing of it is known afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def said_about(text: str, caplog: pytest.LogCaptureFixture, name: str = "shop.py") -> list[str]:
    """What is told about this program."""
    path = Path(name)
    path.write_text(text)
    importing.imported(str(path)).close()
    return [record.getMessage() for record in caplog.records]


def test_a_program_with_jobs_is_good(caplog: pytest.LogCaptureFixture) -> None:
    assert said_about(_APP + _JOB, caplog) == []


def test_a_program_without_jobs_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    [told] = said_about(_APP, caplog)
    assert "shop.py declares no jobs" in told


def test_a_program_that_hides_a_module_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    [told] = said_about(_APP + _JOB, caplog, "this.py")
    assert "this.py is called like a module of Python" in told
    Path("detent.py").write_text(_APP)
    with pytest.raises(AppNotFound, match="rename it"):
        importing.imported("detent.py")


def test_a_part_of_a_package_is_named_as_a_module() -> None:
    Path("pkg").mkdir()
    Path("pkg/jobs.py").write_text(f"from .more import more\n{_APP}")
    with pytest.raises(AppBroken, match=r"from the folder above: pkg\.jobs:app"):
        importing.imported("pkg/jobs.py:app")


def test_what_every_worker_would_do_again_is_told(caplog: pytest.LogCaptureFixture) -> None:
    [told] = said_about(f"{_APP}{_JOB}hi.enqueue()\n", caplog)
    assert "used its store while it was imported" in told


def test_a_program_that_does_not_come_back_is_told_why(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_SLOW_S", 0.01)
    [told] = said_about(_APP + _JOB + _WAITS, caplog)
    assert "still being imported" in told
