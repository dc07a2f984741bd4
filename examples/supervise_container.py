"""A container under a supervisor (experimental); it needs `docker`, or another such runtime."""

import asyncio

from detent.supervisor import Container, Probe, Spec, Supervisor

redis = Container("redis:7-alpine", options=["--publish", "127.0.0.1:6379:6379"], runtime="docker")


async def main() -> None:
    supervisor = Supervisor(
        Spec("redis", redis, restart="on_failure", probe=Probe(interval=5, restart=True), grace=20)
    )
    await supervisor.run()  # until Ctrl-C


if __name__ == "__main__":
    asyncio.run(main())
