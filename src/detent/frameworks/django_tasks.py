"""Django's tasks (`django.tasks`, or the package `django-tasks` before Django 6) run by Detent.

    TASKS = {"default": {"BACKEND": "detent.frameworks.django_tasks.DetentBackend"}}

A task is enqueued in the transaction of Django's own database, so it appears with the commit of the
outermost `atomic` block and is gone with a rollback. Its type is the path of its function. `app_of`
is the `Detent` that runs them.

Options of the backend: `database`, the alias whose database is the store ("default" unless said);
`app`, the path of a `Detent` of yours, whose store must be that database, or `None` for `database`
if it is elsewhere; `retry`, how often a failed task is tried again (never unless said).
"""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, TypedDict, cast

import msgspec

from detent.app.checking import need
from detent.app.detent import Detent
from detent.app.options import need_known
from detent.app.waiting import moment
from detent.engine.secrets import redacted
from detent.errors import PackageMissing
from detent.frameworks.django import url_of
from detent.lifecycle.event import Event
from detent.runtime.context import Context
from detent.runtime.outcomes import Discard, Snooze
from detent.stores.api import Failure, Stored

__all__ = ["DetentBackend", "app_of"]


def _tasks() -> str:
    """The package that brings tasks: Django itself since version 6."""
    for name in ("django.tasks", "django_tasks"):
        try:
            import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name not in (name, "django"):
                raise
        else:
            return name
    raise PackageMissing(
        "Tasks come with Django 6, or with a package before it: pip install django-tasks",
        package="django-tasks",
    )


_NAME: Final = _tasks()
_base: Any = import_module(f"{_NAME}.base")
_faults: Any = import_module(f"{_NAME}.exceptions")
_signals: Any = import_module(f"{_NAME}.signals")
_Backend: Any = import_module(f"{_NAME}.backends.base").BaseTaskBackend

_STATUS: Final = {"active": "RUNNING", "completed": "SUCCESSFUL"} | dict.fromkeys(
    ("discarded", "cancelled"), "FAILED"
)
_registering = threading.Lock()


@cache
def _own_app(database: str) -> Detent:
    # Tests of Django put another database in its place, after tasks have been imported.
    return Detent(partial(url_of, database), actor="django")


def app_of(alias: str = "default") -> Detent:
    """The app that runs the tasks of this backend, which knows all those of installed apps."""
    import_module("django.utils.module_loading").autodiscover_modules("tasks")
    app: Detent = import_module(_NAME).task_backends[alias].app
    return app


class Options(TypedDict, total=False):
    """What `OPTIONS` of a backend may say."""

    database: str | None
    app: str
    retry: int


class DetentBackend(_Backend):  # type: ignore[misc]
    """A backend that keeps tasks in a store of Detent. Django makes one per thread and alias."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        need_known(self.options, Options)
        self._database: str | None = self.options.get("database", "default")
        self._retry: int = self.options.get("retry", 0)

    @property
    def app(self) -> Detent:
        """The app that this backend enqueues with: that of the options, or one of its own."""
        path = self.options.get("app")
        if path is None:
            return _own_app(self._database or "default")
        app: Any = import_module("django.utils.module_loading").import_string(path)
        need("app", path, isinstance(app, Detent), "the path of a Detent")
        return cast("Detent", app)

    def validate_task(self, task: Any) -> None:
        """Refuse what cannot be run; whatever can is known to the app from now on."""
        super().validate_task(task)
        with _registering:
            if task.module_path not in self.app.jobs:
                self._declare(task)

    def _declare(self, task: Any) -> None:
        """A job of its name. Workers serve its queue, and those that the settings name."""
        name, queue = task.module_path, task.queue_name
        self.app.job(name=name, queue=queue, retry=self._retry)(self._handler(task))
        named = sorted(self.queues - set(self.app.other_queues))
        self.app.other_queues.extend(named)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """The task as a job; durable as soon as Django's transaction is."""
        self.validate_task(task)
        result = self._result(task, id="", args=list(args), kwargs=dict(kwargs))
        chosen: dict[str, Any] = {"queue": task.queue_name, "priority": task.priority}
        if task.run_after is not None:
            chosen["at"] = _aware(task.run_after)
        if self._database is not None:
            chosen["conn"] = import_module("django.db").connections[self._database]
        job = self.app.jobs[task.module_path].using(**chosen)
        handle = job.enqueue(*result.args, **result.kwargs)
        at = moment(self.app.connection.now())
        _put(result, id=handle.id, enqueued_at=at)
        _signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """How the task is by now; `TaskResultDoesNotExist` if there is none of that id."""
        stored, history = self.app.bridge.run(self._look(result_id))
        task = _task_of(stored)
        payload = msgspec.json.decode(redacted(stored.body.payload))
        return self._filled(task, stored, history, payload)

    async def _look(self, result_id: str) -> tuple[Stored, list[Event]]:
        store = (await self.app.engine()).store
        [stored] = await store.get([("", result_id)])
        if stored is None:
            raise _faults.TaskResultDoesNotExist(result_id)
        return stored, list(await store.history(("", result_id)))

    # --- results --------------------------------------------------------------------------------

    def _filled(self, task: Any, stored: Stored, history: list[Event], payload: Any) -> Any:
        job = stored.job
        result = self._result(task, id=job.id, args=payload["args"], kwargs=payload["kwargs"])
        claims = [event for event in history if event.name == "claim"]
        _put(
            result,
            status=_base.TaskResultStatus[_STATUS.get(job.state.value, "READY")],
            enqueued_at=moment(job.created_at),
            started_at=moment(claims[0].at) if claims else None,
            last_attempted_at=moment(claims[-1].at) if claims else None,
            finished_at=None if job.ended_at is None else moment(job.ended_at),
            errors=[_error_of(failure) for failure in stored.failures],
            worker_ids=[event.actor_id for event in claims],
            _return_value=msgspec.json.decode(stored.result or "null"),
        )
        return result

    def _result(self, task: Any, **told: Any) -> Any:
        unknown = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
        status = _base.TaskResultStatus.READY
        more = {"backend": self.alias, "errors": [], "worker_ids": []}
        return _base.TaskResult(task=task, status=status, **unknown, **more, **told)

    # --- running --------------------------------------------------------------------------------

    def _handler(self, task: Any) -> Callable[..., Any]:
        """What Detent runs: the function, with Django's signals and connections around it."""
        if inspect.iscoroutinefunction(task.func):

            async def arun(ctx: Context, *args: Any, **kwargs: Any) -> Any:
                with self._running(task, ctx, args, kwargs) as (result, first):
                    value = await task.func(*first, *args, **kwargs)
                    _put(result, _return_value=value)
                    return value

            return arun

        def run(ctx: Context, *args: Any, **kwargs: Any) -> Any:
            with _fresh_connections(), self._running(task, ctx, args, kwargs) as (result, first):
                value = task.func(*first, *args, **kwargs)
                _put(result, _return_value=value)
                return value

        return run

    @contextmanager
    def _running(
        self, task: Any, ctx: Context, args: Any, kwargs: Any
    ) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """The result as it is while the task runs, and the first argument of those who ask."""
        result = self._result(task, id=ctx.job_id, args=list(args), kwargs=dict(kwargs))
        at = moment(self.app.connection.now())
        _put(result, started_at=at, last_attempted_at=at, worker_ids=[""] * ctx.attempt)
        _put(result, status=_base.TaskResultStatus.RUNNING)
        _signals.task_started.send(type(self), task_result=result)
        first = (_base.TaskContext(task_result=result),) if task.takes_context else ()
        try:
            yield result, first
        except Snooze:
            raise
        except BaseException as error:
            if ctx.attempt > self._retry or isinstance(error, Discard):
                self._finish(result, "FAILED", [_error_in(error)])
            raise
        self._finish(result, "SUCCESSFUL", [])

    def _finish(self, result: Any, status: str, errors: list[Any]) -> None:
        at = moment(self.app.connection.now())
        _put(result, status=_base.TaskResultStatus[status], finished_at=at, errors=errors)
        _signals.task_finished.send(type(self), task_result=result)


def _put(result: Any, **told: Any) -> None:
    """Results are frozen; Django itself fills them in like this."""
    for name, value in told.items():
        object.__setattr__(result, name, value)


def _task_of(stored: Stored) -> Any:
    """The task whose job it is, with the options of this one."""
    try:
        task = import_module("django.utils.module_loading").import_string(stored.body.type)
    except ImportError as error:
        raise _faults.TaskResultDoesNotExist(stored.job.id) from error
    if not isinstance(task, _base.Task):
        raise _faults.TaskResultDoesNotExist(stored.job.id)
    at = None if stored.job.run_at is None else moment(stored.job.run_at)
    return task.using(priority=stored.job.priority, queue_name=stored.job.queue, run_after=at)


def _error_of(failure: Failure) -> Any:
    path = failure.type if "." in failure.type else f"builtins.{failure.type}"
    told = failure.backtrace or failure.message
    return _base.TaskError(exception_class_path=path, traceback=told)


def _error_in(error: BaseException) -> Any:
    kind = type(error)
    path = f"{kind.__module__}.{kind.__qualname__}"
    told = "".join(traceback.format_exception(error))
    return _base.TaskError(exception_class_path=path, traceback=told)


def _aware(at: Any) -> Any:
    """Without time zones in the settings Django's moments have none; they are local ones."""
    timezone = import_module("django.utils.timezone")
    return timezone.make_aware(at) if timezone.is_naive(at) else at


@contextmanager
def _fresh_connections() -> Iterator[None]:
    """What a request has too: connections that are too old are not used, and not kept."""
    _close_old()
    try:
        yield
    finally:
        _close_old()


def _close_old() -> None:
    """A rig runs tasks in the thread of a test, whose transaction must outlive them."""
    for connection in import_module("django.db").connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
