"""A job that waits is cancelled at once; one that runs is asked, and stops where it is safe."""

from detent import Context, Detent, JobCancelled

app = Detent()


@app.job
def count(ctx: Context, most: int) -> int:
    for number in range(most):
        ctx.check_cancelled()
        if number == 3:
            app.handle(ctx.job_id).cancel("that is enough")
    return most


if __name__ == "__main__":
    waiting = count.enqueue(1)
    print(waiting.cancel("changed my mind").state)
    running = count.enqueue(1_000_000_000)
    app.drain()
    try:
        running.result()
    except JobCancelled as error:
        print("cancelled:", error.fields["cause"])
    for event in running.history():
        if event.name in ("cancel_requested", "cancel"):
            print(event.name, "by", event.actor, "-", event.reason)

# It prints:
#   cancelled
#   cancelled: confirmed
#   cancel_requested by user - that is enough
#   cancel by worker - None
