"""An engine in Python: jobs are pushed to it over Socket.IO, and it says how they end.

DETENT_URL=http://127.0.0.1:8080 python engine.py
"""

import asyncio
import os
import signal

from detent.engine_client import EngineClient, JobFault, PushedJob

url = os.environ.get("DETENT_URL", "http://127.0.0.1:8080")
name, key = os.environ.get("ENGINE_ID", "py-1"), os.environ.get("DETENT_KEY")
engine = EngineClient(url, name, capacity=4, key=key)


@engine.handles("BUILD_SCENE")
async def build(job: PushedJob) -> dict[str, str]:
    if str(job.payload.get("asset", "")).endswith(".broken"):
        raise JobFault("BAD_ASSET", job.payload["asset"])
    await job.log(f"building {job.payload['scene']}")
    await job.progress(50)
    await asyncio.sleep(job.payload.get("ms", 10) / 1_000)
    return {"scene": job.payload["scene"], "by": name}


async def main() -> None:
    stopping: list[asyncio.Task[None]] = []
    stop = lambda: stopping.append(asyncio.create_task(engine.stop()))  # noqa: E731
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await engine.run()


asyncio.run(main())
