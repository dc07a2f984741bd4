"""Sets how often a worker process looks for cyclic garbage.

A batch of jobs is some ten thousand objects that come and go without cycles. To look through them
after every seven hundred was a sixth of what a worker did, after every ten thousand a fifteenth.
"""

from __future__ import annotations

import gc
from typing import Final

OF_A_SLOT: Final = 15
"""About as many objects wait for the end of a job that runs."""
OBJECTS_MAX: Final = 30_000


def sweep_rarely(slots: int) -> None:
    """As seldom as all that runs at once makes it look like garbage, and no more seldom than that.

    What programs leave behind in cycles may be large, and waits for it. Said before the program is
    imported, so that whatever it says itself stands.
    """
    usual, *older = gc.get_threshold()
    gc.set_threshold(max(usual, min(OF_A_SLOT * slots, OBJECTS_MAX)), *older)


def settle() -> None:
    """What is there now stays for good, and is not looked through again."""
    gc.collect()
    gc.freeze()
