"""Sets how often a worker process looks for cyclic garbage.

A batch of jobs is some ten thousand objects that come and go without cycles. To look through them
after every seven hundred was a sixth of what a worker did, after every ten thousand a fifteenth.
"""

from __future__ import annotations

import gc
from typing import Final

OBJECTS: Final = 30_000
"""After so many more than went there is a look at what is new."""


def sweep_rarely() -> None:
    """From now on; before the program is imported, so that whatever it says itself stands."""
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])


def settle() -> None:
    """What is there now stays for good, and is not looked through again."""
    gc.collect()
    gc.freeze()
