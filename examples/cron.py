"""Jobs by the clock: declared beside their function, fired once however many servers run."""

from datetime import timedelta

from detent import Detent
from detent.testing import Rig

app = Detent()


@app.schedule("0 3 * * *", tz="Europe/Berlin", overlap="skip")
@app.job
def report() -> str:
    return "the report of the night"


@app.job
def sync(shop: str) -> str:
    return f"{shop} is in step"


app.schedules.add("@every 6h", sync.bind("Berlin"), name="sync-berlin")

if __name__ == "__main__":
    with Rig(app) as rig:  # its clock can be moved, so a day takes no time
        rig.drain()  # upkeep begins: what is declared is put into the store
        for schedule in app.schedules.list():
            print(schedule.name, schedule.next_at)
        app.schedules.pause("sync-berlin", "they are on holiday")
        rig.clock.advance(timedelta(days=1))
        print([app.handle(job).result() for job in rig.drain()])

# It prints:
#   report 2030-01-01 02:00:00+00:00
#   sync-berlin 2030-01-01 06:00:00+00:00
#   ['the report of the night']
