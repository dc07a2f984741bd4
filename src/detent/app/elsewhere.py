"""What other job systems call our methods: whoever comes from there is told our word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

_ENQUEUE = "job.enqueue(...)"
_USING = "job.using(...).enqueue(...)"
_BIND = "job.bind(...)"

JOB_WORDS = {
    **dict.fromkeys(("delay", "send", "defer", "perform_async", "submit", "kiq"), _ENQUEUE),
    **dict.fromkeys(("adelay", "defer_async", "adefer", "asend"), "job.aenqueue(...)"),
    **dict.fromkeys(("apply_async", "send_with_options", "configure", "perform_in"), _USING),
    **dict.fromkeys(("s", "si", "signature", "message", "subtask"), _BIND),
    "map": "job.enqueue_many([job.bind(...), ...])",
    "apply": "job(...), which calls the function here and now",
}
APP_WORDS = {
    **dict.fromkeys(("task", "actor", "register_task"), "@app.job"),
    **dict.fromkeys(("periodic_task", "periodic", "cron"), "@app.schedule(...) above @app.job"),
    **dict.fromkeys(("enqueue", "send_task", "enqueue_job"), f"@app.job, and {_ENQUEUE}"),
    **dict.fromkeys(
        ("run", "start", "worker_main", "run_worker"), "detent up PROGRAM; app.drain() in a script"
    ),
    "AsyncResult": "app.handle(id)",
}


class Hinting:
    """An attribute that there is not, but that others have, is answered with ours."""

    words: ClassVar[dict[str, str]] = {}

    if not TYPE_CHECKING:  # It would tell type checkers that there is every attribute.

        def __getattr__(self, name: str) -> Any:
            """Only asked for what nobody has set."""
            kind = type(self).__name__
            if name in self.words:
                why = f"{kind} has no {name}: here it is {self.words[name]}"
                # Without a name of its own Python would guess at another one.
                raise AttributeError(why, name="", obj=self)
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)
