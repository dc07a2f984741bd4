"""A function that is a job: called as before, enqueued with the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from detent.app.asking import Call, mould_of, need_calls
from detent.app.elsewhere import JOB_WORDS, Hinting
from detent.app.handle import Handle
from detent.app.options import (
    DECLARED,
    ELSEWHERE,
    OPTIONS,
    CallOptions,
    JobOptions,
    UsingOptions,
    hidden_of,
    means_of,
    merged,
    need_arguments,
    need_known,
)
from detent.errors import BadArguments, BadOption, BadSignature
from detent.runtime.context import Context
from detent.runtime.signature import Signature
from detent.stores.births import Mould

if TYPE_CHECKING:
    from detent.app.detent import Detent

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
_LAMBDA = "<lambda>"
_WORTH_IT = 2
"""From the so manyth call on it pays to have decided for all of them."""


class Job(Hinting, Generic[P, R, Q, T]):
    """A job type.

    Callers of `enqueue` give `P` and get a handle on an `R`; whoever calls the function itself
    gives `Q`, where its `Context` is, and gets `T`, which is a coroutine if it is asynchronous.
    """

    words = JOB_WORDS

    def __init__(
        self, app: Detent, signature: Signature, options: CallOptions, conn: Any = None
    ) -> None:
        self.app = app
        self.signature = signature
        self.options = options
        self.conn = conn
        self._binds = 0
        self._mould: Mould | None = None
        # Its names and its text; not its attributes, which could be called like ours.
        update_wrapper(self, signature.function, updated=())

    def __call__(self, /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        """Run the function here and now, as if it were no job."""
        returned: T = self.signature.function(*args, **kwargs)
        return returned

    def __repr__(self) -> str:
        return f"<Job {self.name}>"

    @property
    def name(self) -> str:
        """The type of its jobs."""
        return self.signature.name

    def using(self, **options: Unpack[UsingOptions]) -> Job[P, R, Q, T]:
        """The same job with other options, for the calls that are made on the answer.

        With `conn`, a connection of yours, they are enqueued in its transaction.
        """
        for option in options.keys() & DECLARED:
            why = f"{option} is declared with the job, for all of its calls: @app.job({option}=...)"
            raise BadOption(f"{self.name}: {why}", option=option)
        need_known(options, UsingOptions)
        conn = options.pop("conn", self.conn)
        return Job(self.app, self.signature, self._with(options), conn)

    def _with(self, options: UsingOptions) -> CallOptions:
        need_arguments(self.signature, options)
        return cast("CallOptions", merged(self.options, options))

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call that can be enqueued later, or together with others."""
        try:
            payload = self.signature.payload(args, kwargs)
        except BadArguments as error:
            raise _hinted(error, self.signature, kwargs) from None
        self._binds += 1
        if self._binds == _WORTH_IT:
            self._mould = mould_of(self.signature, self.options, self.app.by)
        return Call(self.signature, payload, self.options, self.conn, self._mould)

    # The arguments are checked where the caller is; only what is left to do crosses the bridge.
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """A new job with these arguments; when this returns it is durable."""
        return self.app.enqueue_calls([self.bind(*args, **kwargs)], self.conn)[0]

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same, awaited."""
        return (await self.app.aenqueue_calls([self.bind(*args, **kwargs)], self.conn))[0]

    def enqueue_many(self, /, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """A job per call, made with `bind`, in few commits; a handle for each, in order."""
        return self.app.enqueue_calls(need_calls(calls), self.conn)

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """The same, awaited."""
        return await self.app.aenqueue_calls(need_calls(calls), self.conn)


class Declare:
    """What `app.job` is: a decorator, or with options the maker of one."""

    def __init__(self, app: Detent, options: JobOptions) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Job[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> Job[P, R, Concatenate[Context, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Job[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R, P, R]: ...
    @overload
    def __call__(self, **options: Unpack[JobOptions]) -> Declare: ...
    # mypy does not see that any options include these options.
    def __call__(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Make the function a job of the app, with these options."""
        need_known(options)
        said = cast("JobOptions", merged(self._options, options))
        if function is None:
            return Declare(self._app, said)
        name = _name_of(function, said.pop("name", ""))
        hidden, means = hidden_of(said), means_of(name, function, said)
        signature = Signature(name, function, hidden, means)
        need_arguments(signature, said)
        job: Job[..., Any, ..., Any] = Job(self._app, signature, said)
        self._app.add(job)
        return job


def _hinted(error: BadArguments, signature: Signature, kwargs: Mapping[str, Any]) -> BadArguments:
    """The same, and what was probably meant by whoever is used to something else."""
    ours = {name: name for name in OPTIONS} | ELSEWHERE
    options = [ours[name] for name in kwargs if name in ours and not signature.takes(name)]
    first = next(iter(inspect.signature(signature.function).parameters), "")
    if error.fields["path"] not in ("", "self", "cls"):
        return error
    if options:
        hint = f"options go before: {signature.name}.using({options[0]}=...).enqueue(...)"
    elif first in ("ctx", "context") and not signature.wants_context:
        hint = f"if {first} is to be the context of the run, annotate it: {first}: Context"
    elif first in ("self", "cls"):
        hint = "a job is a function, and a method has nobody to be called on"
    else:
        return error
    return BadArguments(f"{error}; {hint}", **error.fields)


def _name_of(function: object, name: str) -> str:
    """What its jobs are called; refused if it is no function that could be one."""
    shown = repr(function)[:60]
    if isinstance(function, Job):
        why = f"{shown} is a job already: give it other options with using, or another function"
    elif isinstance(function, str):
        why = f"Options have names: @app.job(name={shown})"
    elif isinstance(function, classmethod):
        why = "A job is called on nobody, and a class method on its class: make it a staticmethod"
    elif not callable(function):
        why = f"{shown} is no function"
    elif isinstance(function, type) and function.__module__ != "builtins":
        why = f"{shown} is a class, and to call it makes an object: put @app.job above a function"
    elif name or getattr(function, "__name__", _LAMBDA) != _LAMBDA:
        return name or str(getattr(function, "__name__", ""))
    else:
        why = f"{shown} has no name of its own: give its jobs one with name="
    raise BadSignature(why, job=name)
