"""Handlers that fork: the copy that comes back from its handler must not go on as a worker.

It shares the descriptors of the original, those that its loop waits for included, and knows all
its jobs: it would take away its news, and run what is the original's to run.
"""

from __future__ import annotations

import os

from detent.runtime.executors.api import Ended, Returned


class Forks:
    """How many forks lie between the first process and this one.

    Counted as they happen: to ask the kernel who we are, before and after every run, would be a
    hundredth of all that a worker does.
    """

    count = 0

    @classmethod
    def one_more(cls) -> None:
        """This process is a copy."""
        cls.count += 1


os.register_at_fork(after_in_child=Forks.one_more)


def original(forks: int, ended: Ended) -> Ended:
    """The end, in the process where the run had begun; a copy of that ends here, unheard."""
    if Forks.count != forks:
        os._exit(0 if isinstance(ended, Returned) else 1)
    return ended
