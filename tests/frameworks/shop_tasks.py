"""Tasks of a Django program: they must stand at the top of a module, so it is one of its own."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import django
from django.conf import settings

if not settings.configured:
    settings.configure(DATABASES={})
    django.setup()

# Another test may have configured Django without tasks: they are told of ours by the handler.
PACKAGE: Any
try:
    PACKAGE = import_module("django.tasks")
except ModuleNotFoundError:
    PACKAGE = import_module("django_tasks")

BACKEND = {
    "BACKEND": "detent.frameworks.django_tasks.DetentBackend",
    "QUEUES": [],
    "OPTIONS": {"app": "tests.frameworks.shop_tasks.app", "database": None},
}
PACKAGE.task_backends.settings["detent"] = BACKEND

from detent import Detent, Snooze  # noqa: E402

app: Detent = Detent("memory:")
"""Every test puts one of its own here, before the tasks are asked for."""


class Declined(Exception):
    """Of the shop."""


def add(a: int, b: int = 1) -> int:
    return a + b


async def slow(a: int) -> int:
    await asyncio.sleep(0)
    return a


def fails(a: int) -> None:
    raise Declined(f"no {a}")


def told(context: Any, a: int) -> list[Any]:
    return [context.attempt, context.task_result.id, a]


def naps(context: Any, a: int) -> int:
    if context.attempt == 1:
        raise Snooze(0)
    return a


def tasks() -> tuple[Any, ...]:
    """The tasks, known to the app of the moment under the names that Django finds them by."""
    made = []
    for function in (add, slow, fails, told, naps):
        takes = function.__name__ in ("told", "naps")
        plain = getattr(function, "func", function)
        made.append(PACKAGE.task(backend="detent", takes_context=takes)(plain))
    return tuple(made)
