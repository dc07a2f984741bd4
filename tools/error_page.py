"""The reference page about errors: every code, its class, what it means, whether to try again."""

from __future__ import annotations

import inspect
from importlib import import_module

from detent.errors import DetentError
from tools.markdown import code, grid, page, section

_MARK = "Written by `make generate` from the classes in detent.errors. Do not edit it."
_INTRO = """\
Every error has a `code` that stays, a message that says what happened, why, and what to do, and
its facts in `fields`. Commands end with the code in brackets; in Python all are a `DetentError`:

```python
from detent import Detent
from detent.errors import DetentError

try:
    Detent("mysql://db.example.org/shop").handle("1").status()
except DetentError as error:
    print(error.code, error.retryable, error.fields["scheme"])
```

```text
bad_url False mysql
```

`retryable` is whether the same call may succeed when it is made again. What a *job* ended with is
another matter: `detent jobs show ID` has the errors of its attempts, and the
[job lifecycle](lifecycle/job.md) the causes.
"""
_ROOMS = {
    "jobs": "Programs, jobs and their options",
    "stores": "Stores",
    "workers": "Workers, servers and their processes",
    "root": "The rules themselves",
}


def error_page() -> str:
    """The page about all errors."""
    return page(
        "Errors",
        _INTRO,
        *(section(title, _table(room)) for room, title in _ROOMS.items()),
        mark=_MARK,
    )


def _table(room: str) -> str:
    found = sorted(_errors(room), key=lambda one: one.code)
    return grid(("code", "class", "means", "again"), map(_row, found))


def _errors(room: str) -> set[type[DetentError]]:
    """The classes of one module; what it imports to build on is told of where it stands."""
    there = vars(import_module(f"detent.errors.{room}")).values()
    found = {one for one in there if isinstance(one, type) and issubclass(one, DetentError)}
    return found if room == "root" else found - _errors("root")


def _row(one: type[DetentError]) -> tuple[str, ...]:
    means = " ".join(inspect.cleandoc(one.__doc__ or "").split())
    return code(one.code), code(one.__name__), means, "yes" if one.retryable else "no"
