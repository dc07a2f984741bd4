"""An order and the mail about it, in one transaction of SQLAlchemy's on PostgreSQL."""

import os

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from detent import Detent
from detent.stores import run_migrations

url = os.environ["DATABASE_URL"]  # postgresql://...
run_migrations(url)
app = Detent(url)
engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


@app.job
def mail(order: int) -> str:
    return f"thank you for order {order}"


if __name__ == "__main__":
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS orders (number int)"))
    with Session(engine) as session:
        session.execute(text("INSERT INTO orders VALUES (1)"))
        mail.using(conn=session).enqueue(1)
        session.rollback()  # neither the order nor the mail
        session.execute(text("INSERT INTO orders VALUES (2)"))
        handle = mail.using(conn=session).enqueue(2)
        session.commit()  # both
    with app:
        print(len(app.drain()), handle.result())
    with engine.begin() as connection:
        print(connection.execute(text("SELECT * FROM orders")).all())
    engine.dispose()

# It prints:
#   1 thank you for order 2
#   [(2,)]
