"""How commands begin: called off before they have, or started without descriptors."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def test_a_command_that_is_still_loading_ends_without_a_word() -> None:
    # Python itself says which modules it has read: so it is known how far the command is.
    command = [sys.executable, "-X", "importtime", "-m", "detent", "verify"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith("| detent.cli.output\n") or "rich" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
    assert process.returncode == -signal.SIGINT
    assert [line for line in rest.splitlines() if not line.startswith("import time:")] == []


def test_a_command_without_descriptors_takes_nobody_elses_for_them(tmp_path: Path) -> None:
    url, told = f"sqlite:///{tmp_path}/detent.db", tmp_path / "told"
    for closed in ("<&- >&-", "<&- >&- 2>&-"):
        words = f"exec {sys.executable} -m detent migrate --store {url} {closed}"
        with told.open("w") as to:
            done = subprocess.run(["/bin/sh", "-c", words], stderr=to, check=False)  # noqa: S603
        assert (done.returncode, told.read_text()) == (0, "")
