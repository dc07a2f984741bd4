"""A program under a supervisor: when it is killed, another one takes its place."""

import asyncio
import logging
import os
import signal
import sys

from detent.supervisor import Backoff, Process, Spec, Supervisor

logging.disable()  # the death of a worker is logged
PROGRAM = "import time; time.sleep(60)"


async def main() -> None:
    program = Process(sys.executable, "-c", PROGRAM, min_uptime=0.2)
    async with Supervisor(Spec("web", program, backoff=Backoff(initial=0.01))) as supervisor:
        first = supervisor.status("web").pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        async for tree in supervisor.watch():  # the tree now, and after every change
            [web] = tree.children
            if web.status == "Running" and web.pid != first:
                break
        print(web.status, "again, restarts:", dict(web.metadata)["restarts"])
    print(supervisor.status("web").status)


asyncio.run(main())

# It prints:
#   Running again, restarts: 1
#   Stopped
