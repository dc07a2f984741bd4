"""A job that ends in the transaction of its own rows: a crash in between leaves both or neither."""

import sqlite3

from detent import Context, Detent, stores

stores.run_migrations("sqlite:shop.db")
app = Detent("sqlite:shop.db")


@app.job(retry=2)
def pay(ctx: Context, order: int) -> str:
    connection = sqlite3.connect("shop.db")
    try:
        connection.execute("INSERT INTO payments VALUES (?)", (order,))
        ctx.complete(f"order {order} is paid", conn=connection)
        if ctx.attempt == 1:
            raise ConnectionError("the bank hung up")  # before the commit: nothing has happened
        connection.commit()  # now the row is there, and the job has ended
    finally:
        connection.close()
    raise SystemExit("whatever happens now, it is not paid twice")


if __name__ == "__main__":
    with sqlite3.connect("shop.db") as connection:
        connection.execute("CREATE TABLE payments (number int)")
    handle = pay.enqueue(7)
    app.drain()
    print(handle.status().state, "with", connection.execute("SELECT * FROM payments").fetchall())
    handle.run_now("no need to wait")
    app.drain()
    print(handle.result())
    print(connection.execute("SELECT * FROM payments").fetchall())
    connection.close()

# It prints:
#   retryable with []
#   order 7 is paid
#   [(7,)]
