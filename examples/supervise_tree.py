"""Supervisors nest: in this group all are restarted when one fails; its sibling goes on."""

import asyncio
import logging

from detent.supervisor import Backoff, Function, Spec, Supervisor, WorkerContext

logging.disable()  # a failure is logged with its traceback
started: list[str] = []
restarted = asyncio.Event()


async def serve(worker: WorkerContext) -> None:
    """Run until stopped; the first reader fails."""
    started.append(f"{worker.handover.slot} {worker.handover.attempt}")
    if started[-1] == "pipeline/reader 1":
        raise ConnectionError
    if started[-1] == "pipeline/reader 2":
        restarted.set()
    await asyncio.Event().wait()


async def main() -> None:
    workers = [Spec(name, Function(serve)) for name in ("writer", "reader")]
    pipeline = Supervisor(*workers, strategy="one_for_all", backoff=Backoff(initial=0.01))
    async with Supervisor(Spec("clock", Function(serve)), Spec("pipeline", pipeline)) as top:
        await restarted.wait()
        print(*started, sep=", ")
        await top.stop("pipeline/reader")  # what is further down has a path
        print(top.status("pipeline/reader").status)


asyncio.run(main())

# It prints:
#   clock 1, pipeline/writer 1, pipeline/reader 1, pipeline/writer 2, pipeline/reader 2
#   Stopped
