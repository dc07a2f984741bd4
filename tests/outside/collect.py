"""What the snapshots need from inside Detent. Everything else in this folder uses public names."""

# What is stored or said has no public name.
# ruff: noqa: SLF001
from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
import typer
from msgspec import inspect
from typer.testing import CliRunner

import detent
from detent import Detent, stores
from detent import errors as errors_
from detent.cli.application import application_of
from detent.engine.access import Key
from detent.engine.aliases import _Alias as Alias
from detent.engine.declared import _Type as DeclaredType
from detent.engine.directives import Directive
from detent.engine.engines import Seated
from detent.engine.keeping import Kept as WorkflowKept
from detent.engine.marking import Mark
from detent.engine.schedule import Schedule
from detent.engine.subscribers import Cursor
from detent.engine.switches import Switch
from detent.engine.webhook import Delivery, Webhook
from detent.lifecycle.event import Event
from detent.lifecycle.retry import RetryPolicy
from detent.lifecycle.worker import Instance
from detent.lifecycle.workflow import Step, Tally, Workflow
from detent.runtime.executors.pool.messages import Order, Word
from detent.runtime.supervisor.body import Handover
from detent.stores.api import Death, Who
from detent.surfaces.http.exchange import Call, Settings
from detent.surfaces.http.problems import problem_of
from detent.surfaces.http.service import Service
from detent.surfaces.jobnik.jobs import _Hearing as Hearing
from detent.surfaces.jobnik.keeping import JobKept, StageKept, TaskKept
from detent.surfaces.ojs.configs import Config
from detent.surfaces.ojs.limiting import _Until as LimitUntil
from detent.surfaces.ojs.reading import Extras
from detent.surfaces.ojs.registry import _Schema as KeptSchema
from detent.surfaces.ojs.retention import _Mark as KeepingMark
from detent.surfaces.ojs.silence import _Watch as StallWatch
from detent.surfaces.ojs.system import Pool
from detent.surfaces.ojs.weighing import _Mark as QueueMark
from detent.surfaces.ojs.workers import Worker
from detent.testing import VirtualClock
from tests.contract.living import whole
from tests.surfaces.server import Running, running

T = TypeVar("T")


class Server:
    """A real HTTP server whose background loops run only when the test says so."""

    def __init__(self, serving: Running, loops: dict[str, Callable[[], Awaitable[None]]]) -> None:
        self.app = serving.app
        self.port = serving.port
        self._service = serving.app.service
        self._loops = loops
        self._loop = serving.app.service._loop

    def run_timers(self) -> None:
        """Apply everything that is due: retries, deadlines, schedules, lost leases."""
        self._do(self._service.engine.upkeep.turn())

    def ship_life(self, worker: str) -> None:
        """Store the history of a worker that was killed, as its supervisor does."""
        engine = self._service.engine
        self._do(engine.workers.ship(whole(worker, engine.store.now())))

    @contextmanager
    def background(self, *names: str) -> Iterator[None]:
        """Run the background loops of these names until the end of the block."""

        async def begin() -> list[asyncio.Future[None]]:
            return [asyncio.ensure_future(self._loops[name]()) for name in names]

        async def end() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        tasks = self._do(begin())
        try:
            yield
        finally:
            self._do(end())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


@contextmanager
def serving(url: str, clock: VirtualClock, program: Detent | None = None) -> Iterator[Server]:
    """A server on this store. Every store that is opened meanwhile goes by the clock."""
    loops: dict[str, Callable[[], Awaitable[None]]] = {}
    open_store = stores.open

    def opened(url: str, **more: Any) -> stores.Store:
        # Another day may go on meanwhile: it has said which clock is its own.
        return open_store(url, **more | {"clock": more.get("clock") or clock})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "open", opened)
        patch.setattr(Service, "keep", lambda _, name, work: loops.setdefault(name, work))
        with running(url, Settings(), program) as found:
            yield Server(found, loops)


class CommandLine:
    """The commands, run in this process on one store."""

    def __init__(self, url: str = "") -> None:
        self.application = application_of(pretty=False)
        env = {"DETENT_STORE": url, "NO_COLOR": "1", "COLUMNS": "100", "FORCE_COLOR": None}
        self._runner = CliRunner(env=env)

    def run(self, *words: str, codes: Collection[int] = (0,)) -> str:
        """What the command prints; it must end with one of these codes."""
        done = self._runner.invoke(
            self.application, words, catch_exceptions=False, prog_name="detent"
        )
        assert done.exit_code in codes, (words, done.output)
        return done.stdout

    def data(self, *words: str) -> Any:
        """The same as JSON."""
        return json.loads(self.run(*words, "--json"))


# --- commands -----------------------------------------------------------------------------------


def commands(command: CommandLine) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The words of every command and group, and whether it can answer in JSON."""

    def below(words: tuple[str, ...], one: Any) -> Iterator[tuple[tuple[str, ...], bool]]:
        yield words, any("--json" in option.opts for option in one.params)
        for name, inner in sorted(getattr(one, "commands", {}).items()):
            yield from below((*words, name), inner)

    return below((), typer.main.get_command(command.application))


# --- what is stored, and what processes say to each other ---------------------------------------

# Each kind of small record, and each stored column of JSON, with what is written there.
STORED: dict[str, Any] = {
    "record alias": Alias,
    "record alias-of": Alias,
    "record api-key": Key,
    "record directive": Directive,
    "record engine": Seated,
    "record jobnik-priority": Hearing,
    "record jobnik-stage": StageKept,
    "record ojs-keeping": KeepingMark,
    "record ojs-limit": LimitUntil,
    "record ojs-mark": QueueMark,
    "record ojs-pool": Pool,
    "record ojs-queue": Config,
    "record ojs-schema": KeptSchema,
    "record ojs-schema-uri": KeptSchema,
    "record ojs-stall": StallWatch,
    "record ojs-worker": Worker,
    "record schedule": Schedule,
    "record subscriber": Cursor,
    "record switch": Switch,
    "record type": DeclaredType,
    "record upkeep": Mark,
    "record webhook": Webhook,
    "record webhook-delivery": Delivery,
    "record workflow": WorkflowKept,
    "event": Event,
    "job meta $ojs": Extras,
    "job meta of jobnik": TaskKept,
    "job retry": RetryPolicy,
    "step": Step,
    "step tally": Tally,
    "worker who": Who,
    "worker death": Death,
    "worker history": Instance,
    "workflow": Workflow,
    "workflow meta of jobnik": JobKept,
}
# What is kept as it was sent, or has nothing in it.
SHAPELESS = {"record dropping", "record engine-type"}
_SAID: dict[str, Any] = dict.fromkeys(Handover.__struct_fields__, 1)
HANDOVER = Handover(**_SAID)


def fields(kind: Any) -> Iterator[str]:
    """Each field with its name on the wire and its type, a line each; `?` may be missing."""
    types: dict[str, list[str]] = {}
    for path, word in _fields(inspect.type_info(kind), "", ()):
        types.setdefault(path, []).append(word)
    return (f"{path} {' or '.join(words)}" for path, words in types.items())


def _fields(kind: inspect.Type, path: str, inside: tuple[type, ...]) -> Iterator[tuple[str, str]]:
    match kind:
        case inspect.StructType(cls=cls, fields=found) if cls not in inside:
            for field in found:
                name = f"{path}.{field.encode_name}{'' if field.required else '?'}"
                yield from _fields(field.type, name, (*inside, cls))
        case inspect.UnionType(types=types):
            for one in types:
                yield from _fields(one, path, inside)
        case inspect.TupleType(item_types=types):
            for number, one in enumerate(types):
                yield from _fields(one, f"{path}[{number}]", inside)
        case inspect.DictType(value_type=inner):
            yield from _fields(inner, path + "{}", inside)
        case inspect.EnumType(cls=cls):
            yield path, f"one of {' '.join(sorted(one.value for one in cls))}"
        case _ if hasattr(kind, "item_type"):
            yield from _fields(kind.item_type, path + "[]", inside)
        case _:
            yield path, type(kind).__name__.removesuffix("Type").lower()


def pool_messages() -> dict[str, list[str]]:
    """What a worker and its pool processes say, with all fields."""
    said = [*get_args(Order), *get_args(Word)]
    return {one.__struct_config__.tag: sorted(fields(one)) for one in said}


@cache
def read_in_source() -> tuple[list[str], list[str]]:
    """What a supervisor and its workers say and listen for, and what a supervisor measures."""
    messages: set[str] = set()
    metrics: set[str] = set()
    for path in Path(detent.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            messages.update(_said(node))
            metrics.update(_measured(node))
    return sorted(messages), sorted(metrics)


def _said(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Dict(keys=[ast.Constant("kind"), *more], values=[ast.Constant(str() as kind), *_]):
            names = [str(one.value) for one in more if isinstance(one, ast.Constant)]
            yield " ".join(("says", kind, *names))
        case ast.Call(
            func=ast.Attribute(attr="ask"),
            args=[ast.Constant(str() as question), ast.Constant(str() as answer)],
        ):
            yield f"says {question} nonce"
            yield f"hears {answer}"
        case ast.Call(func=ast.Attribute(attr="hear"), args=[ast.Dict(keys=keys), _]):
            yield from (f"hears {one.value!s}" for one in keys if isinstance(one, ast.Constant))
        case ast.Call(
            func=ast.Attribute(attr="hear_at_once"), args=[ast.Constant(str() as kind), _]
        ):
            yield f"hears {kind}"
        case ast.Compare(
            left=ast.Subscript(slice=ast.Constant("kind")),
            comparators=[ast.Constant(str() as kind)],
        ):
            yield f"hears {kind}"
        case ast.Match(subject=ast.Subscript(slice=ast.Constant("kind")), cases=cases):
            patterns = [one for case in cases for one in ast.walk(case.pattern)]
            kinds = [one.value for one in patterns if isinstance(one, ast.MatchValue)]
            yield from (f"hears {one.value!s}" for one in kinds if isinstance(one, ast.Constant))
        case _:
            pass


def _measured(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(attr=verb), args=[name, *more], keywords=named):
            dicts = [one for one in more if isinstance(one, ast.Dict)]
            keys = [key for one in dicts for key in one.keys if isinstance(key, ast.Constant)]
            labels = sorted([*(str(key.value) for key in keys), *(str(one.arg) for one in named)])
            verb = verb.strip("_")
            text = ast.unparse(name).removeprefix("f").strip("\"'").removeprefix("{PREFIX}")
            if verb in ("count", "observe") and re.fullmatch(r"[a-z]\w*({\w+})?_[a-z]+", text):
                yield " ".join((f"lifecycle_{text}", verb, *labels))
        case _:
            pass


# --- errors and sockets -------------------------------------------------------------------------


def errors() -> list[type[errors_.DetentError]]:
    """Every error of ours."""
    found, new = set(), {errors_.DetentError}
    while new:
        found |= new
        new = {below for one in new for below in one.__subclasses__()} - found
    ours = [one for one in found if one.__module__.startswith("detent.")]
    return sorted(ours, key=lambda one: one.code)


def answer_to(server: Server, path: str, error: Exception) -> tuple[int, Any]:
    """The status and the body with which the surface of this path tells an error."""
    call = Call({"headers": [], "method": "GET"}, path, "")
    reply = server.app._surface(path).problem(problem_of(error, "r"), call)
    return reply.status, json.loads(reply.body)


def socket_messages(server: Server) -> Iterator[str]:
    """What engines and subscribers may say over Socket.IO, with all fields."""
    surface: Any = server.app._surface("/engine")
    rooms = {"/engine": surface._engine_answers(), "/events": surface._event_answers()}
    for room, answers in rooms.items():
        for event, (kind, _) in answers.items():
            yield from (f"{room} {event} {field}" for field in fields(kind))
