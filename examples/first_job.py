"""A function becomes a job: declare it, enqueue it, run what is due, ask for the result."""

from detent import Detent

app = Detent()  # detent.db in this folder, unless DETENT_URL says otherwise


@app.job
def greet(name: str, times: int = 1) -> str:
    return ", ".join([f"hello {name}"] * times)


if __name__ == "__main__":
    handle = greet.enqueue("Ada", times=2)
    print(handle.status().state)
    app.drain()
    print(handle.result())
    print([event.name for event in handle.history()])

# It prints:
#   available
#   hello Ada, hello Ada
#   ['enqueue', 'claim', 'complete']
