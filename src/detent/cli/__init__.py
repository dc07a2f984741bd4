"""The command line: one module per command, exit codes are a contract.

0 done; 1 it could not be done, or the answer is no; 2 the question could not be asked: the command
line was wrong, or the store it names cannot be used.
"""

from __future__ import annotations

from detent.cli.application import main

__all__ = ["main"]
