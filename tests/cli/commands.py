"""Running the command as a user does: a process of its own, in a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

_QUIET = {
    *("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TERM"),
    *("DETENT_STORE", "DETENT_URL", "DATABASE_URL"),
}


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    said: str
    complained: str

    @property
    def data(self) -> Any:
        """What it said, if that was JSON."""
        return json.loads(self.said)


def detent(*args: str | Path, **env: str) -> Done:
    """The end of `detent` with these arguments."""
    clean = {name: value for name, value in os.environ.items() if name not in _QUIET}
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "detent", *map(str, args)],
        capture_output=True,
        check=False,
        env={**clean, **env},
        text=True,
        timeout=1_200,
    )
    return Done(done.returncode, done.stdout, " ".join(done.stderr.split()))
