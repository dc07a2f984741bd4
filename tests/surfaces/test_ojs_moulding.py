"""The short way of envelopes that are sent again and again says and stores what the long way does.

An envelope is read and decided when it comes for the first and the second time, and stamped from
the third time on. So whatever is sent three times must be answered three times in the same words.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from detent import stores
from detent.engine.access import OPEN_TO_ALL, Principal
from detent.engine.engine import Engine
from detent.errors import DetentError
from detent.surfaces.http.caller import CallerRules, caller_of
from detent.surfaces.http.exchange import Call, Settings
from detent.surfaces.http.problems import Problem, problem_of
from detent.surfaces.http.service import Service
from detent.surfaces.ojs import moulding
from detent.surfaces.ojs.surface import OjsSurface

_OWN = re.compile(r"01[0-9a-f]{6}-[0-9a-f-]{27}|\d{16,}|20\d\d-\d\d-\d\dT[\d:.]+Z")
"""Ids, instants and places, which every job has for itself."""


@asynccontextmanager
async def surface(tmp_path: Path, settings: Settings | None = None) -> AsyncIterator[OjsSurface]:
    """The surface on a store of its own, without a socket."""

    async def opening(stack: AsyncExitStack) -> Engine:
        url = f"sqlite:///{tmp_path}/detent.db"
        store = await stack.enter_async_context(stores.open(url))
        engine = await stack.enter_async_context(Engine(store))
        service.opened(engine)
        return engine

    service = Service(opening)
    found = OjsSurface(service, settings or Settings())
    await service.start()
    try:
        yield found
    finally:
        await service.stop()


def a_call(text: str, who: Principal | None = None, path: str = "/jobs", **headers: str) -> Call:
    told = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    call = Call({"method": "POST", "headers": told}, f"/ojs/v1{path}", "req_1")
    call.body = text.encode()
    rules = CallerRules("ojs", "X-OJS-Tenant")
    call.caller = caller_of(who or OPEN_TO_ALL, call.header("x-ojs-tenant"), rules)
    return call


def is_short(ojs: OjsSurface, call: Call) -> bool:
    """Whether it would go the short way."""
    sent = ojs.jobs.moulding.sent(call)
    return sent is not None and ojs.jobs.moulding.shape(call, sent) is not None


async def pushed(ojs: OjsSurface, call: Call) -> tuple[str, ...]:
    """What is answered, and what is stored then: all but what each job has for itself."""
    try:
        reply = await ojs.jobs.push(call)
    except (Problem, DetentError) as error:
        found = problem_of(error, "req_1")
        return str(found.status), found.code, found.message
    job_id = json.loads(reply.body)["job"]["id"]
    assert reply.headers[0] == ("location", f"/ojs/v1/jobs/{job_id}")
    key, store = (call.caller.tenant, job_id), ojs.desk.engine.store
    [stored] = await store.get([key])
    told = (reply.body.decode(), repr(stored), repr(await store.history(key)))
    assert job_id in told[0]
    assert job_id in told[1]
    return str(reply.status), *(_OWN.sub("~", one) for one in told)


async def is_same(ojs: OjsSurface, text: str, **more: Any) -> bool:
    """Push it three times, see that nothing differs, and tell whether the third was short."""
    first, second = [await pushed(ojs, a_call(text, **more)) for _ in range(2)]
    short = is_short(ojs, a_call(text, **more))
    assert first == second == await pushed(ojs, a_call(text, **more)), text
    return short


PLAIN = [
    '{"type":"mail.send","args":[]}',
    '{"type":"mail.send","args":[1.0,1e5,{"a":[null,true,"%b %s 100%"]}]}',
    '{"args":["é",{"k":"v"}],"type":"mail.send","options":{"queue":"bench","priority":1}}',
    '{"type":"a.b-c","args":[1],"queue":"q.1","priority":"HIGH","meta":{"a":{"b":[1]}}}',
    '{"type":"a","args":[1],"options":{"retry":{"max_attempts":7,"initial_interval":"PT2S"}}}',
    '{"type":"a","args":[1],"retry":{"max_attempts":0},"tags":["x","y"],"timeout_ms":5000}',
    '{"type":"a","args":[1],"options":{"timeout":30,"visibility_timeout":"PT2M","pending":true}}',
    '{"specversion":"1.0","type":"a","args":[1],"meta":{"traceparent":"none","50%":"%b"}}',
    '{"type":"a","args":[1],"options":{"metadata":{"m":1},"meta_of_mine":2},"meta":null}',
    '{ "type" : "a" , "args" : [ 1 , 2 ] , "options" : null }',
    '{"type":"a","type":"b","args":[1],"args":[2]}',
    '{"\\u0074ype":"a","args":[1],"meta":{"args":[1]}}',
]
ODD = [
    '{"type":"a","args":[1],"options":{"unique":{"keys":["type"],"on_conflict":"reject"}}}',
    '{"type":"a","args":[1],"options":{"scheduled_at":"2098-01-01T00:00:00Z"}}',
    '{"type":"a","args":[1],"options":{"scheduled_at":"+PT5M"}}',
    '{"type":"a","args":[1],"options":{"expires_at":"2099-01-01T00:00:00Z"}}',
    '{"type":"a","args":[1],"options":{"rate_limit":{"concurrency":2}}}',
    '{"type":"a","args":[1],"schema":"urn:x"}',
    '{"type":"a","args":[1],"ext_ml_gpu":{"n":1.50}}',
    '{"type":"a","args":["\\u0041"]}',
    '{"type":"a","args":[{"$detent":"x"}]}',
    '{"type":"a","args":{}}',
    '{"type":"A","args":[1]}',
    '{"type":"a"}',
    '{"type":"a","args":[1]',
    '{"type":"a","args":[1],"queue":"No"}',
    '{"type":"a","args":[1],"priority":"often"}',
    '{"type":"a","args":[1],"meta":{"$ojs":1}}',
    '{"type":"a","args":[1],"tags":"x"}',
]


async def test_what_is_sent_again_is_answered_and_stored_as_the_first_time(tmp_path: Path) -> None:
    async with surface(tmp_path) as ojs:
        assert [await is_same(ojs, text) for text in PLAIN] == [True] * len(PLAIN)


async def test_what_is_odd_takes_the_long_way(tmp_path: Path) -> None:
    async with surface(tmp_path) as ojs:
        for text in ODD:
            call = a_call(text)
            for _ in range(2):
                await pushed(ojs, call)
            assert not is_short(ojs, call), text


async def test_arguments_are_those_of_the_call(tmp_path: Path) -> None:
    async with surface(tmp_path) as ojs:
        for number in range(4):
            reply = await ojs.jobs.push(a_call(f'{{"type":"a","args":[{number},"%b"]}}'))
            told = json.loads(reply.body)["job"]
            assert told["args"] == [number, "%b"]
            [stored] = await ojs.desk.engine.store.get([("", told["id"])])
            assert stored is not None
            assert stored.body.payload == f'[{number},"%b"]'


def an_envelope(chance: random.Random) -> str:
    """Anything that a producer may send, and some of what it may not."""
    pick = chance.choice
    some = {
        "type": pick(["a", "mail.send", "B"]),
        "args": pick([[], [1], [{"a": "é"}], ["x" * 80], [[[]]], 7]),
        "meta": pick([{}, {"k": "v"}, {"n": [1, {"m": None}]}, None, []]),
        "queue": pick(["default", "q-1", "", None]),
        "priority": pick([0, -5, 101, "LOW", None]),
        "retry": pick([{}, {"max_attempts": 2}, {"jitter": 1}, None]),
        "tags": pick([[], ["a"], [1], None]),
        "timeout_ms": pick([1, 90_000, 0, None]),
        "options": pick([{}, {"queue": "q-2", "priority": 3}, {"pending": True}, {"x": 1}, None]),
        "specversion": pick(["1.0", 1, None]),
        "version": "2",
    }
    optional = [name for name in some if name not in ("type", "args")]
    left = {name for name in optional if chance.random() < 0.7}
    return json.dumps({name: value for name, value in some.items() if name not in left})


async def test_generated_envelopes_go_both_ways_alike(tmp_path: Path) -> None:
    chance = random.Random(46)
    async with surface(tmp_path) as ojs:
        short = [await is_same(ojs, an_envelope(chance)) for _ in range(120)]
    assert 20 < sum(short) < 100


async def test_tenants_and_keys_have_shapes_of_their_own(tmp_path: Path) -> None:
    text = '{"type":"a","args":[1]}'
    one, two = Principal(id="one"), Principal(id="two", queues=("others",))
    async with surface(tmp_path) as ojs:
        assert await is_same(ojs, text, who=one, x_ojs_tenant="t1")
        assert not is_short(ojs, a_call(text, one, x_ojs_tenant="t2"))
        assert "forbidden" in await pushed(ojs, a_call(text, two, x_ojs_tenant="t1"))
        told = json.loads((await ojs.jobs.push(a_call(text, one, x_ojs_tenant="t1"))).body)
        [event] = await ojs.desk.engine.store.history(("t1", told["job"]["id"]))
        assert event.actor_id == "one"
        # The same key, after it was taken back from that queue.
        less = Principal(id="one", queues=("others",))
        assert "forbidden" in await pushed(ojs, a_call(text, less, x_ojs_tenant="t1"))


async def test_whatever_comes_in_the_way_is_seen(tmp_path: Path) -> None:
    text = '{"type":"a","args":[1],"queue":"q"}'
    async with surface(tmp_path) as ojs:
        assert await is_same(ojs, text)
        bound = a_call('{"backpressure":{"max_depth":4}}', path="/admin/queues/q/config")
        bound.params = {"name": "q"}
        await ojs.queues.configure(bound)
        assert (await pushed(ojs, a_call(text)))[0] == "201"
        assert "QUEUE_FULL" in await pushed(ojs, a_call(text))

        text = '{"type":"a","args":[1]}'
        assert await is_same(ojs, text)
        schema = a_call('{"schema":{"type":"array","items":{"type":"string"}}}')
        schema.params = {"type": "a", "version": "1"}
        await ojs.registry.put_version(schema)
        assert "schema_validation" in await pushed(ojs, a_call(text))

        text = '{"type":"b","args":["%s"]}'
        assert await is_same(ojs, text % "x")
        large = await pushed(ojs, a_call(text % ("x" * 1_100_000)))
        assert large[1] == "envelope_too_large"
        deep = '{"type":"b","args":%s}' % ("[" * 70 + "]" * 70)
        assert (await pushed(ojs, a_call(deep)))[0] == "400"


async def test_a_trace_of_the_caller_is_kept(tmp_path: Path) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with surface(tmp_path) as ojs:
        assert await is_same(ojs, '{"type":"a","args":[1]}')
        assert not await is_same(ojs, '{"type":"a","args":[1]}', traceparent=parent)
        reply = await ojs.jobs.push(a_call('{"type":"a","args":[1]}', traceparent=parent))
        [stored] = await ojs.desk.engine.store.get([("", json.loads(reply.body)["job"]["id"])])
        assert stored is not None
        assert parent in stored.body.meta


async def test_a_veto_of_a_test_suite_is_heard(tmp_path: Path) -> None:
    text = '{"type":"a","args":[%s],"meta":{"ojs_validate":true}}'
    async with surface(tmp_path, Settings(test_mode=True)) as ojs:
        assert not await is_same(ojs, text % 1)
        assert "x_validation_failed" in await pushed(ojs, a_call(text % ""))


async def test_shapes_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moulding, "SHAPES_MAX", 3)
    texts = [f'{{"type":"a","args":[1],"priority":{number}}}' for number in range(5)]
    async with surface(tmp_path) as ojs:
        assert all([await is_same(ojs, text) for text in texts])
        assert [is_short(ojs, a_call(text)) for text in texts] == [False] * 2 + [True] * 3
        wide = '{"type":"a","args":[1],"meta":{"k":"%s"}}' % ("x" * 5_000)
        assert not await is_same(ojs, wide)
