"""A job that fails is tried again, as patiently as its policy says; some errors are final."""

from detent import Backoff, Context, Detent, Discard, JobFailed, Retry
from detent.testing import Rig

app = Detent()


@app.job(retry=Backoff(retries=3, first=10, never=[KeyError]))
def fetch(ctx: Context, url: str) -> str:
    if url == "gone":
        raise Discard("nobody lives here any more")
    if ctx.attempt == 1:
        raise ConnectionError("no answer")
    if ctx.attempt == 2:
        raise Retry("they are busy", after=3600)
    return f"{url} after {ctx.attempt} attempts"


if __name__ == "__main__":
    with Rig(app) as rig:  # its clock can be moved, so an hour takes no time
        works, gone = fetch.enqueue("here"), fetch.enqueue("gone")
        rig.drain(advance=True)
        print(works.result())
        try:
            gone.result()
        except JobFailed as error:
            print(error.fields["cause"], "-", error.fields["error_message"])

# It prints:
#   here after 3 attempts
#   discard_asked - nobody lives here any more
