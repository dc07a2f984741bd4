"""The command line: one module per command, exit codes are a contract.

0 done; 1 it could not be done; 2 the command line itself was wrong.
"""

from __future__ import annotations

from detent.cli.application import main

__all__ = ["main"]
