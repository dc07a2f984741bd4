"""Tools for testing jobs: an app in memory, a clock that stands still, and workers that die.

def test_the_invoice_is_sent(rig: Rig) -> None:
    order.enqueue(7)
    rig.drain()
    rig.assert_enqueued(send_invoice.bind(7))

The names are loaded when they are first used: pytest reads this package in every project that has
Detent installed, whether its tests are about jobs or not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detent.runtime.running import Moment
    from detent.testing.clock import VirtualClock
    from detent.testing.rig import Crashed, Rig

__all__ = ["Crashed", "Moment", "Rig", "VirtualClock"]

if not TYPE_CHECKING:  # Type checkers read the imports above, and complain of other names.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "clock" if name == "VirtualClock" else "rig"
        return getattr(import_module(f"{__name__}.{home}"), name)

    def __dir__() -> list[str]:
        return list(__all__)
