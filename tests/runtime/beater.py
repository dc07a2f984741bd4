"""A process that beats for one instance and says what it hears, line by line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

from detent import stores
from detent.engine.processes import here
from detent.runtime.beating import Beating, Hearing, Pace
from detent.stores.api import Who, WorkerRow

PACE = Pace(every_s=0.2, lease_s=1.0, margin_s=0.3, retry_s=0.1, timeout_s=0.3)


def heard(word: str) -> Callable[[Sequence[str]], None]:
    def say(ids: Sequence[str]) -> None:
        sys.stdout.write(f"{word} {' '.join(ids)}\n")
        sys.stdout.flush()

    return say


async def main(url: str) -> None:
    async with stores.open(url) as store:
        beating = Beating(store, Hearing(heard("lapsed"), heard("lost")), PACE)
        process = here()
        who = Who(supervisor="s1", process=process, keeper=process)
        beating.add(WorkerRow("w1", 0, who=who))
        running = asyncio.create_task(beating.run())
        await beating.registered("w1")
        heard("registered")(["w1"])
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
