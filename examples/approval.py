"""A workflow in stages, one of which waits for somebody's word; results are handed on."""

from detent import Context, Detent, stages

app = Detent()


@app.job
def build(part: str) -> str:
    return f"{part}-1.0"


@app.job
def check(ctx: Context) -> int:
    return len(ctx.results())


@app.job
def ship(ctx: Context) -> list[str]:
    return ctx.results("build")


if __name__ == "__main__":
    parts = [build.bind("api"), build.bind("web")]
    plan = stages({"build": parts, "check": check.bind(), "ship": ship.bind()}, gate=["ship"])
    release = app.start(plan, name="release 1.0")
    app.drain()
    print(release.progress(), "percent,", release.status().step("ship").state)
    release.approve("ship", "Ada has looked at it")
    app.drain()
    print(release.results("check"), release.result())

# It prints:
#   75 percent, waiting
#   [2] [['api-1.0', 'web-1.0']]
