"""A function under a supervisor: it runs beside your program, and can be suspended."""

import asyncio

from detent.supervisor import Function, Spec, Supervisor, WorkerContext

ticks = 0


async def tick(worker: WorkerContext) -> None:
    """Tick until the supervisor stops this worker."""
    global ticks  # noqa: PLW0603
    worker.ready()  # the supervisor waits for this, because of `wait_ready`
    while True:
        await worker.acheckpoint()  # while it is suspended, it waits here
        ticks += 1
        await asyncio.sleep(0.01)


async def main() -> None:
    function = Function(tick, suspendable=True, wait_ready=True)
    async with Supervisor(Spec("tick", function)) as supervisor:
        print(supervisor.status("tick").status)
        await supervisor.suspend("tick")
        before = ticks
        await asyncio.sleep(0.05)
        print(supervisor.status("tick").status, ticks - before)
        await supervisor.resume("tick")
        print(supervisor.status("tick").status)
    print(supervisor.status("tick").status)


asyncio.run(main())

# It prints:
#   Running
#   Suspended 0
#   Running
#   Stopped
