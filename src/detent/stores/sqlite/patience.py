"""How long a store on a file waits before it says that something is wrong."""

from __future__ import annotations

from typing import Final

import msgspec

TURN_S: Final = 30.0
"""Turns take milliseconds; only a stopped process, or a disk that hangs, keeps one for so long."""
READ_S: Final = 30.0
"""Pages take milliseconds; while somebody reads for long, the log beside the file cannot shrink."""


class Patience(msgspec.Struct, frozen=True):
    """Seconds until waiting for the turn to write, and until a question, is given up."""

    turn_s: float = TURN_S
    read_s: float = READ_S


PATIENCE: Final = Patience()
