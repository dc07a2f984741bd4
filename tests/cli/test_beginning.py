"""How commands begin: called off before they have, or started without descriptors."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

_CALLED_OFF = """
import os, signal, sys

# As in a terminal, also where whoever started these tests hears no Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["detent", "verify"]
from detent.cli import main
main()
"""


def test_a_command_that_is_still_loading_ends_without_a_word() -> None:
    """The signal comes while it reads the modules that take longest."""
    command = [sys.executable, "-c", _CALLED_OFF]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_command_without_descriptors_takes_nobody_elses_for_them(tmp_path: Path) -> None:
    url, told = f"sqlite:///{tmp_path}/detent.db", tmp_path / "told"
    for closed in ("<&- >&-", "<&- >&- 2>&-"):
        words = f"exec {sys.executable} -m detent migrate --store {url} {closed}"
        with told.open("w") as to:
            done = subprocess.run(["/bin/sh", "-c", words], stderr=to, check=False)  # noqa: S603
        assert (done.returncode, told.read_text()) == (0, "")
