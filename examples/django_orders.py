"""Django: an order and the mail about it, in one `atomic` block of Django's own database."""

import django
from django.conf import settings

SHOP = {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}
settings.configure(DATABASES={"default": SHOP})
django.setup()

from django.db import connection, transaction  # noqa: E402

from detent import Detent, stores  # noqa: E402
from detent.frameworks.django import url_of  # noqa: E402

stores.run_migrations(url_of("default"))
app = Detent(lambda: url_of("default"))


@app.job
def mail(order: int) -> str:
    return f"thank you for order {order}"


in_django = mail.using(conn=connection)  # that of the thread which enqueues

if __name__ == "__main__":
    connection.cursor().execute("CREATE TABLE orders (number int)")
    for number in (1, 2):
        with transaction.atomic():
            connection.cursor().execute("INSERT INTO orders VALUES (%s)", [number])
            handle = in_django.enqueue(number)
            if number == 1:
                transaction.set_rollback(True)  # neither the order nor the mail
    print(len(app.drain()), handle.result())
    print(connection.cursor().execute("SELECT * FROM orders").fetchall())

# It prints:
#   1 thank you for order 2
#   [(2,)]
