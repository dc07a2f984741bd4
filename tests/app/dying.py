"""A program that drains, and stands still in its first job until it is killed.

With a second argument it believes to be on a host of that name.
"""

from __future__ import annotations

import os
import sys

from detent import Detent

if len(sys.argv) > 2:
    was = os.uname()
    os.uname = lambda: os.uname_result((was.sysname, sys.argv[2], *was[2:]))

with Detent(sys.argv[1]) as app:

    @app.job(name="stand")
    def stand() -> str:
        sys.stdout.write("standing\n")
        sys.stdout.flush()
        return sys.stdin.read()

    app.drain()
