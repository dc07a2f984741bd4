"""Ctrl-C before a command has begun: it ends, and says nothing about what it was reading."""

from __future__ import annotations

import signal
import subprocess
import sys


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
