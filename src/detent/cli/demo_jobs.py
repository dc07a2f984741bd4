"""The jobs of `detent demo`: one that works, one that fails at first, one that must be stopped."""

from __future__ import annotations

import asyncio

from detent.app.detent import Detent
from detent.app.policies import Backoff
from detent.runtime.context import Context

app = Detent(actor="demo")


@app.job
async def greet(name: str) -> str:
    """Works at once."""
    return f"Hello, {name}!"


@app.job(retry=Backoff(retries=3, first=1.0, jitter=False))
async def flaky(ctx: Context) -> str:
    """Fails the first time."""
    if ctx.attempt == 1:
        raise ConnectionError("the mail server did not answer")
    return "sent, at the second attempt"


@app.job
async def watch(ctx: Context) -> None:
    """Goes on until somebody cancels it."""
    while True:
        ctx.check_cancelled()
        await asyncio.sleep(0.1)


@app.job
async def report(ctx: Context, pages: int) -> int:
    """Takes a while and remembers how far it is; it survives the death of its worker."""
    done: int = ctx.saved(int) or 0
    while done < pages:
        await asyncio.sleep(0.3)
        done += 1
        await ctx.asave(done)
        ctx.progress(100 * done / pages, f"page {done} of {pages}")
    return done
