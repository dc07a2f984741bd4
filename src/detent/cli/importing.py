"""A program is imported to be run, and whoever wrote it is told what workers will not like."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import Final

from detent.app.detent import Detent
from detent.app.loading import load

_log = logging.getLogger("detent.fleet")
_SLOW_S: Final = 5.0
_BELOW: Final = 'put what only you should start below if __name__ == "__main__":'


def imported(program: str) -> Detent:
    """The app of the program."""
    told = ("%s is still being imported; if it waits for a job, nobody runs it yet: %s", program)
    slow = threading.Timer(_SLOW_S, _log.warning, (*told, _BELOW))
    slow.daemon = True
    slow.start()
    try:
        app = load(program)
    finally:
        slow.cancel()
    if Path(program.partition(":")[0]).stem in sys.stdlib_module_names:
        why = "%s is called like a module of Python: whoever imports that gets yours; rename it"
        _log.warning(why, program)
    if app.connection.ready is not None:
        why = "%s used its store while it was imported, and so does every worker that starts: %s"
        _log.warning(why, program, _BELOW)
    if not app.jobs and not app.engine_types:
        why = "%s declares no jobs, so its workers run none: import the modules that do, in it"
        _log.warning(why, program)
    return app
