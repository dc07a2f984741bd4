"""The fast path for pushed jobs that differ in their arguments alone.

Most producers send the same envelope again and again. What all of them share is read, checked and
decided when it comes for the second time; it is known again by the very bytes of its fields. Later
ones are stamped (`engine/moulds.py`), and so is their reply. Whatever is odd about an envelope, its
sender or its queue takes the long way, which says the same.
"""

from __future__ import annotations

import re
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.engine.limits import need_payload
from detent.engine.moulds import is_plain, mould_of
from detent.engine.otel_spans import tracing
from detent.lifecycle.job import Job
from detent.stores.api import Stored
from detent.stores.births import Birth, Mould
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.routing import Hear
from detent.surfaces.ojs.admission import Admission
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.envelope import shown
from detent.surfaces.ojs.reading import VETO, Wanted
from detent.surfaces.ojs.wire import told

SHAPES_MAX: Final = 1_000
"""Others are forgotten, the oldest first."""
_SEEN_MAX: Final = 10_000
_SHAPE_BYTES_MAX: Final = 4_096
_MOMENTS: Final = (946_684_861_007_000, 978_307_322_013_000)
"""Two instants that differ in every part."""


class _Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The fields of a plain envelope, as they are written; any other makes it an odd one."""

    type: Raw = Raw()
    args: Raw = Raw()
    options: Raw = Raw()
    meta: Raw = Raw()
    queue: Raw = Raw()
    priority: Raw = Raw()
    retry: Raw = Raw()
    tags: Raw = Raw()
    timeout_ms: Raw = Raw()
    specversion: Raw = Raw()


_decode = msgspec.json.Decoder(_Sent).decode


class Sent:
    """An envelope that may be one of many: its arguments, and what it is known again by."""

    __slots__ = ("key", "payload", "tenant")

    def __init__(self, tenant: str, who: str, sent: _Sent) -> None:
        self.tenant = tenant
        self.payload = bytes(sent.args).decode()
        self.key = (
            tenant,
            who,
            bytes(sent.type),
            bytes(sent.options),
            bytes(sent.meta),
            bytes(sent.queue),
            bytes(sent.priority),
            bytes(sent.retry),
            bytes(sent.tags),
            bytes(sent.timeout_ms),
            bytes(sent.specversion),
        )


class Example(NamedTuple):
    """A job that nobody asked for, its arguments, and how it is shown."""

    job: Job
    args: str
    text: bytes

    @property
    def marks(self) -> tuple[bytes, bytes, bytes]:
        """What no other job of its shape has: its name, its arguments, its moment."""
        return _own(self.job.id, self.job.created_at, self.args)


class Shape:
    """What envelopes of one shape have in common: how their jobs are made, and shown."""

    __slots__ = ("_blanks", "_text", "mould", "queue", "type")

    def __init__(self, ask: Ask, mould: Mould, example: Example) -> None:
        self.type = ask.type
        self.queue = ask.queue
        self.mould = mould
        marks = example.marks
        found = re.split(b"(" + b"|".join(map(re.escape, marks)) + b")", example.text)
        self._text = b"%b".join(part.replace(b"%", b"%%") for part in found[::2])
        self._blanks = itemgetter(*map(marks.index, found[1::2]))

    def reply(self, birth: Birth) -> Reply:
        """What whoever has sent the envelope is told."""
        _, job_id, at, _, payload = birth
        headers = (("location", f"/ojs/v1/jobs/{job_id}"),)
        return Reply(201, self.written(job_id, at, payload), headers=headers)

    def written(self, job_id: str, at: int, payload: str) -> bytes:
        """The job as it is shown: a text with blanks, filled in."""
        text: bytes = self._text % self._blanks(_own(job_id, at, payload))
        return text


def _own(job_id: str, at: int, payload: str) -> tuple[bytes, bytes, bytes]:
    return job_id.encode(), payload.encode(), told(at).encode()


def _made_known(shape: Shape, hear: Hear, made: Birth | Exception) -> None:
    hear(made if isinstance(made, Exception) else shape.reply(made))


class Moulding:
    """Knows shapes of envelopes, each from its second time on."""

    def __init__(self, desk: Desk, admission: Admission) -> None:
        self._desk = desk
        self._admission = admission
        self._shapes: dict[tuple[Any, ...], Shape | None] = {}
        self._seen: set[int] = set()

    def sent(self, call: Call) -> Sent | None:
        """The envelope, if it could be one of many."""
        tenant = call.caller.tenant
        if b"traceparent" in call.headers or tracing() is not None:
            return None
        try:
            found = Sent(tenant, call.caller.id, _decode(call.body))
        except (msgspec.DecodeError, RecursionError):
            # What is wrong with it is said on the long way.
            return None
        return found if found.payload.startswith("[") and is_plain(found.payload) else None

    def press(self, call: Call, hear: Hear) -> bool:
        """Make the job, if all is known about it; whoever hears the reply needs no task."""
        sent = self.sent(call)
        shape = None if sent is None else self.shape(call, sent)
        if sent is None or shape is None:
            return False
        made = partial(_made_known, shape, hear)
        self._desk.engine.enqueueing.press_for(shape.mould, sent.payload, made)
        return True

    def shape(self, call: Call, sent: Sent) -> Shape | None:
        """Its shape, if that is known and nothing can be in its way."""
        shape = self._shapes.get(sent.key)
        if shape is None:
            return None
        if not self._admission.is_open(call, sent.tenant, shape.type, shape.queue):
            return None
        need_payload(sent.payload)
        return shape

    def learn(self, call: Call, sent: Sent, wanted: Wanted) -> None:
        """One of this shape went the long way and was made; the next may be stamped."""
        mark = hash(sent.key)
        if sent.key in self._shapes:
            return
        if mark not in self._seen:
            if len(self._seen) >= _SEEN_MAX:
                self._seen.clear()
            self._seen.add(mark)
            return
        if len(call.body) - len(sent.payload) > _SHAPE_BYTES_MAX:
            return
        if len(self._shapes) >= SHAPES_MAX:
            del self._shapes[next(iter(self._shapes))]
        self._shapes[sent.key] = self._made(call, wanted)

    def _made(self, call: Call, wanted: Wanted) -> Shape | None:
        ask = wanted.ask
        is_vetoed = self._desk.settings.test_mode and VETO in ask.meta
        if wanted.limits is not None or ask.schema is not None or is_vetoed:
            return None
        mould = mould_of(replace(ask, secret=()), call.caller.actor)
        if mould is None:
            return None
        first, second = (self._example(mould, at) for at in _MOMENTS)
        if any(mark in call.body for mark in first.marks):
            return None
        shape = Shape(ask, mould, first)
        # What it writes must be what is shown, of another one too.
        written = shape.written(second.job.id, second.job.created_at, second.args)
        return shape if written == second.text else None

    def _example(self, mould: Mould, at: int) -> Example:
        new_id = self._desk.engine.identity.id
        args = f'["{new_id()}"]'
        [new] = mould.unit(new_id(), at, at, args).new
        text = self._desk.reply({"job": shown(Stored(new.job, new.body), new.job.id)}).body
        return Example(new.job, args, text)
