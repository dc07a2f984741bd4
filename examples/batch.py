"""A batch: many jobs at once, and one job that follows when all have ended, by how they did."""

from detent import Context, Detent, WorkflowFailed, batch

app = Detent()


@app.job(retry=0)
def charge(customer: str) -> int:
    if customer == "eve":
        raise PermissionError("card refused")
    return 10


@app.job
def book(ctx: Context) -> str:
    return f"{sum(ctx.results())} booked"


@app.job
def alert(ctx: Context) -> str:
    ends = [one.state for one in ctx.endings()]
    return f"{ends.count('discarded')} of {len(ends)} failed"


if __name__ == "__main__":
    for customers in (["ada", "bob"], ["ada", "eve", "bob"]):
        calls = [charge.bind(customer) for customer in customers]
        handle = app.start(batch(calls, on_success=book.bind(), on_failure=alert.bind()))
        app.drain()
        try:
            print(handle.result())
        except WorkflowFailed as error:
            print(error.fields["steps"], handle.results("on_failure"))

# It prints:
#   ['20 booked']
#   ['jobs'] ['1 of 3 failed']
