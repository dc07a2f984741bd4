"""Limits per key: how many run at once, how many start within a time, whoever runs them."""

from detent import Detent, Limit
from detent.testing import Rig

app = Detent()


@app.job(key="customer:{customer}", limit=Limit(concurrency=1))
def export(customer: str) -> None:
    """One at a time for each customer."""


@app.job(limit=Limit(rate=2, per=60))
def call(number: str) -> str:
    """Two a minute, for all of them together."""
    return f"called {number}"


if __name__ == "__main__":
    with Rig(app) as rig:
        export.enqueue_many([export.bind("ada"), export.bind("bob"), export.bind("ada")])
        calls = call.enqueue_many(call.bind(str(n)) for n in range(5))
        rig.drain()
        print([handle.status().state for handle in calls])
        started = rig.clock.now
        rig.drain(advance=True)
        print([handle.result() for handle in calls][-1], "after", rig.clock.now - started)

# It prints:
#   ['completed', 'completed', 'available', 'available', 'available']
#   called 4 after 0:02:00
