"""Django's own tasks, run by Detent: enqueued in `atomic` blocks, with results for everybody."""

import django
from django.conf import settings

SHOP = {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}
BACKEND = {"BACKEND": "detent.frameworks.django_tasks.DetentBackend", "OPTIONS": {"retry": 1}}
settings.configure(DATABASES={"default": SHOP}, TASKS={"default": BACKEND}, USE_TZ=True)
django.setup()

from django.db import transaction  # noqa: E402

from detent import stores  # noqa: E402
from detent.frameworks.django import url_of  # noqa: E402
from detent.frameworks.django_tasks import app_of  # noqa: E402

try:
    from django.tasks import task  # Django 6
except ImportError:
    from django_tasks import task  # before it

stores.run_migrations(url_of("default"))


@task(priority=10)
def mail(order: int) -> str:
    return f"thank you for order {order}"


if __name__ == "__main__":
    for number in (1, 2):
        with transaction.atomic():
            result = mail.enqueue(number)
            transaction.set_rollback(number == 1)  # no order, no mail
    app_of("default").drain()  # in production: a worker on the same app
    result.refresh()
    print(result.status, result.attempts, result.return_value)

# It prints:
#   SUCCESSFUL 1 thank you for order 2
