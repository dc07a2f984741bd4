"""Tools for testing jobs: an app in memory, a clock that stands still, and workers that die.

def test_the_invoice_is_sent(rig: Rig) -> None:
    order.enqueue(7)
    rig.drain()
    rig.assert_enqueued(send_invoice.bind(7))
"""

from __future__ import annotations

from detent.runtime.running import Moment
from detent.testing.clock import VirtualClock
from detent.testing.rig import Crashed, Rig

__all__ = ["Crashed", "Moment", "Rig", "VirtualClock"]
