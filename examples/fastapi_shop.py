"""FastAPI: the store opens and closes with the server, and requests enqueue."""

from fastapi import FastAPI
from fastapi.testclient import TestClient

from detent import Detent
from detent.frameworks.asgi import lifespan

jobs = Detent()
web = FastAPI(lifespan=lifespan(jobs))


@jobs.job
def mail(order: int) -> str:
    return f"thank you for order {order}"


@web.post("/orders/{number}")
async def order(number: int) -> dict[str, str]:
    handle = await mail.aenqueue(number)
    return {"job": handle.id}


@web.get("/jobs/{job}")
async def state(job: str) -> dict[str, str]:
    return {"state": (await jobs.handle(job).astatus()).state}


if __name__ == "__main__":
    with TestClient(web) as client:
        job = client.post("/orders/7").json()["job"]
        print(client.get(f"/jobs/{job}").json())
        jobs.drain()  # what a worker does elsewhere
        print(client.get(f"/jobs/{job}").json())

# It prints:
#   {'state': 'available'}
#   {'state': 'completed'}
