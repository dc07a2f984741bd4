"""A client for engines: programs that have jobs pushed to them, over Socket.IO.

    engine = EngineClient("http://127.0.0.1:8080", "renderer-1", capacity=4)

    @engine.handles("BUILD_SCENE")
    async def build(job: PushedJob) -> object:
        await job.progress(50, "half of it")
        return {"triangles": 12}

    asyncio.run(engine.run())

A connection that breaks is made again and goes on with the jobs that were in hand, under the same
boot id and the same leases; what was said meanwhile is said again. Install `detent[engine]`.
"""

from __future__ import annotations

from detent.extras import needs_extra

with needs_extra("engine", "An engine client"):
    import aiohttp as _aiohttp  # noqa: F401 - python-socketio loads it when it connects

    from detent.engine_client.client import EngineClient
from detent.engine_client.jobs import JobFault, PushedJob

__all__ = ["EngineClient", "JobFault", "PushedJob"]
