"""A job says how far it is, keeps a log, and saves what it must not lose."""

from detent import Context, Detent

app = Detent()


@app.job(retry=1)
def copy(ctx: Context, pages: int) -> int:
    done = ctx.saved(int) or 0
    for page in range(done, pages):
        ctx.log(f"page {page + 1}")
        ctx.progress(100 * (page + 1) / pages, f"{page + 1} of {pages}")
        ctx.save(page + 1)  # safe when this returns
        if page == 1 and ctx.attempt == 1:
            raise ConnectionError("the printer is out of paper")
    return pages - done


if __name__ == "__main__":
    from detent.testing import Rig

    with Rig(app) as rig:
        handle = copy.enqueue(3)
        rig.drain()
        print(handle.status().percent, handle.status().message)
        rig.drain(advance=True)
        print(handle.status().percent, "and", handle.result(), "page in the second attempt")
        print([line.text for line in handle.logs()])

# It prints:
#   66 2 of 3
#   100 and 1 page in the second attempt
#   ['page 1', 'page 2', 'page 3']
