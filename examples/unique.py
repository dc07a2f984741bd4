"""No second job like the first: per arguments, per a choice of them, or per request."""

from detent import Detent, JobExists, Unique

app = Detent()


@app.job(unique=True)
def rebuild(index: str) -> None:
    """One at a time per index, however often it is asked for."""


@app.job(unique=Unique(by=("user",), within=3600, on_conflict="reject"))
def remind(user: str, text: str) -> None:
    """At most one an hour per user, whatever it says."""


if __name__ == "__main__":
    first, second = rebuild.enqueue("users"), rebuild.enqueue("users")
    print(second.id == first.id, second.is_new)
    remind.enqueue("ada", "pay")
    try:
        remind.enqueue("ada", "please pay")
    except JobExists as error:
        print(error.fields["what"], error.fields["state"])
    request = rebuild.using(idempotency_key="request-7", unique=False)
    print(request.enqueue("orders").id == request.enqueue("orders").id)

# It prints:
#   True False
#   unique available
#   True
