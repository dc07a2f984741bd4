"""One scripted day: everything that can happen to jobs, through the public ways in.

The clock stands still until the script moves it. Every use of `day.app`, `day.job` and a client is
one second later than the one before, so that the order of ids is the order of the script.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.request import Request, urlopen

import pytest

from detent import (
    Backoff,
    Cancelled,
    Context,
    Detent,
    Discard,
    Limit,
    Snooze,
    Unique,
    batch,
    chain,
    dag,
    group,
    stages,
)
from detent.testing import Crashed, Rig
from tests.outside.collect import CommandLine, Server, serving
from tests.outside.columns import canonical, dump
from tests.surfaces.engines import Engine, held
from tests.surfaces.jobnik import Jobnik
from tests.surfaces.rest import Rest
from tests.surfaces.server import Client, eventually

KEY = base64.b64encode(bytes(32)).decode()
STEADY = Backoff(retries=2, first=10, jitter=False)


class Day:
    """The script's hands: a program with a worker, HTTP clients, a command line, and the clock."""

    def __init__(self, url: str, rig: Rig, server: Server) -> None:
        self.url, self.rig, self.server = url, rig, server
        self.command = CommandLine(url)
        self.rows: list[str] = []
        self.clients = (Client(server.port), Jobnik(server.port), Rest(server.port))

    @property
    def app(self) -> Detent:
        self.rig.clock.advance(1)
        return self.rig.app

    def job(self, name: str) -> Any:
        """The job type of that name."""
        return self.app.jobs[name]

    @property
    def ojs(self) -> Client:
        self.rig.clock.advance(1)
        return self.clients[0]

    @property
    def jobnik(self) -> Jobnik:
        self.rig.clock.advance(1)
        return self.clients[1]

    @property
    def rest(self) -> Rest:
        self.rig.clock.advance(1)
        return self.clients[2]

    def live(self) -> None:
        """The whole script; `rows` is what it leaves, and whether the proof of it holds."""
        # The server's numbers of events begin with the first look.
        self.get("/metrics")
        self.wait(30)
        for hour in HOURS:
            hour(self)
        verified = self.command.data("verify")
        del verified["checked"]["head"]
        self.rows = [*dump(self.url), json.dumps({"in": "verify", **verified})]

    def work(self) -> None:
        """Let a worker of ours run everything that is due."""
        self.rig.clock.advance(1)
        self.rig.drain()

    def wait(self, seconds: int) -> None:
        """Let time pass second by second: after a gap nobody is declared lost for a while."""
        for _ in range(seconds):
            self.rig.clock.advance(1)
            self.server.run_timers()

    def fetch(self, queue: str, **more: Any) -> dict[str, Any]:
        """Claim one job over the wire."""
        [job] = self.ojs.fetch(queue, **more)
        return job

    def get(self, path: str) -> bytes:
        """What the server answers."""
        request = Request(f"http://127.0.0.1:{self.server.port}{path}")
        for name, value in self.clients[0].headers.items():
            request.add_header(name, value)
        with urlopen(request) as answer:  # noqa: S310
            found: bytes = answer.read()
            return found

    def id_of(self, type_: str) -> str:
        """The first job of this type that is still there, whatever its state is."""
        found = canonical(self.url)["payloads"]
        return next(str(one["job"]) for one in found if one["type"] == type_)

    def stored(self, kind: str) -> list[dict[str, Any]]:
        """The small records of a kind."""
        return [one for one in canonical(self.url)["records"] if one["kind"] == kind]


def program(url: str, rig: Rig) -> Detent:
    """The job types of the day; their names say what happens to them."""
    app = Detent(url, clock=rig.clock, actor="ada", retry=STEADY)

    @app.job(name="plain")
    def plain(n: int = 0) -> int:
        return n * 2

    @app.job(name="flaky")
    def flaky(ctx: Context) -> str:
        if ctx.attempt < 3:
            raise ConnectionError(f"attempt {ctx.attempt}")
        return "at last"

    @app.job(name="doomed", retry=0)
    def doomed() -> None:
        raise ValueError("it broke")

    @app.job(name="hopeless")
    def hopeless() -> None:
        raise Discard("of no use")

    @app.job(name="sleepy")
    def sleepy(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Snooze(60)

    @app.job(name="gives-up")
    def gives_up() -> None:
        raise Cancelled("not needed")

    @app.job(name="talks")
    def talks(ctx: Context) -> dict[str, Any]:
        ctx.log("begun")
        ctx.progress(50, "half")
        ctx.save({"row": 7})
        ctx.log("odd", "warning")
        ctx.enqueue(plain.bind(5))
        return {"lines": 2}

    @app.job(name="secretive", secret=("token",))
    def secretive(user: str, token: str) -> str:
        return f"{user} {len(token)}"

    @app.job(name="wired", queue="wired")
    def wired(n: int = 0) -> None:
        """Only workers that speak over the wire serve its queue."""

    @app.job(name="limited", queue="wired", key="{who}", limit=Limit(concurrency=1, rate=5, per=60))
    def limited(who: str) -> None:
        """The same, one at a time for everybody."""

    return app


def enqueue_everything(day: Day) -> None:
    day.job("plain").enqueue(1)
    day.job("plain").using(delay=3_600).enqueue(2)
    day.job("plain").using(priority=5, tags=["a", "b"], key="k", meta={"m": 1}).enqueue(3)
    day.job("plain").using(idempotency_key="once", tenant="acme").enqueue(4)
    day.job("plain").using(idempotency_key="once", tenant="acme").enqueue(4)
    unique = Unique(within=600, on_conflict="ignore")
    for _ in range(2):
        day.job("plain").using(unique=unique, queue="aside", delay=50_000).enqueue(6)
    plain = day.job("plain")
    day.app.enqueue_many([plain.bind(n) for n in (10, 11)])
    day.job("secretive").enqueue("ada", "hunter2")
    day.ojs.post(
        "/jobs/batch", {"jobs": [{"type": "x.a", "args": [1]}, {"type": "x.b", "args": []}]}
    )
    day.ojs.push("x.unique", unique={"keys": ["type"], "on_conflict": "reject"}, queue="aside")
    day.ojs.push("x.later", queue="aside", scheduled_at="2030-02-01T00:00:00Z", priority=3)
    day.rest.ask("POST", "", {"action": "plain", "inputs": {"n": 8}}, Idempotency_Key="r").ok(202)


def work_with_our_worker(day: Day) -> None:
    for name in ("flaky", "doomed", "hopeless", "sleepy", "gives-up", "talks"):
        day.job(name).enqueue()
    day.work()
    for _ in range(2):
        day.wait(40)
        day.work()


def lose_our_worker(day: Day) -> None:
    day.job("plain").using(queue="lost").enqueue(1)
    day.rig.clock.advance(1)
    with pytest.raises(Crashed):
        day.rig.drain(crash="after_claim")
    day.work()


def tell_of_a_supervised_worker(day: Day) -> None:
    day.rig.clock.advance(1)
    day.server.ship_life("instance-1")
    day.rig.clock.advance(4)


def work_over_the_wire(day: Day) -> None:
    retry = {"max_attempts": 2, "initial_interval": "PT5S", "jitter": False}
    day.ojs.push("w.done", 1, queue="w", retry=retry)
    day.ojs.ack(day.fetch("w"), {"n": 1})
    day.ojs.push("w.fails", queue="w", retry=retry)
    day.ojs.nack(day.fetch("w"), details={"d": 1}, backtrace=["a", "b"])
    day.wait(6)
    day.ojs.nack(day.fetch("w"), "worse", type="Fatal")
    day.ojs.push("w.late", queue="late", timeout_ms=5_000, retry=retry)
    day.fetch("late")
    day.wait(7)
    day.ojs.push("w.lost", queue="lost.wire", retry=retry)
    day.fetch("lost.wire", worker="w2", visibility_timeout_ms=3_000)
    day.wait(30)
    day.ojs.post("/workers/register", {"worker_id": "w3", "hostname": "h", "labels": {"gpu": "1"}})
    day.ojs.push("w.beats", queue="beats")
    job = day.fetch("beats", worker="w3")
    beat = {"worker_id": "w3", "state": "running", "active_jobs": [job["id"]]}
    day.ojs.post("/workers/heartbeat", beat).ok()
    progress = {"job_id": job["id"], "worker_id": "w3", "progress": 0.5, "message": "half"}
    day.ojs.put(f"/jobs/{job['id']}/progress", progress).ok()
    day.ojs.put(f"/jobs/{job['id']}/checkpoint", {"state": {"row": 3}}).ok()
    day.ojs.push("w.expires", queue="aside", expires_at="2030-01-01T02:00:00Z")
    day.ojs.push("w.letter", queue="w", retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    letter = day.ojs.nack(day.fetch("w"))["job"]
    day.ojs.post(f"/dead-letter/{letter['id']}/retry").ok()
    day.ojs.nack(day.fetch("w"))


def cancel_in_every_form(day: Day) -> None:
    day.job("wired").enqueue(1).cancel("too late")
    day.job("wired").using(delay=90).enqueue(2).cancel()
    asked = day.job("wired").enqueue(3)
    job = day.fetch("wired")
    asked.cancel("please stop")
    day.ojs.post("/workers/heartbeat", {"worker_id": "w1", "active_jobs": [job["id"]]}).ok()
    day.ojs.nack(job, "cancelled")
    forced = day.job("wired").enqueue(4)
    day.fetch("wired", worker="w4", visibility_timeout_ms=5_000)
    forced.cancel()
    outrun = day.job("wired").enqueue(5)
    job = day.fetch("wired")
    outrun.cancel()
    day.ojs.ack(job)
    day.ojs.push("w.now", queue="w")
    running = day.fetch("w")
    day.ojs.delete(f"/jobs/{running['id']}").ok()
    day.wait(30)


def steer_jobs_and_queues(day: Day) -> None:
    wired = day.job("wired").using(queue="steered")
    jobs = [wired.enqueue(n) for n in range(5)]
    for n, verb in enumerate(("hold", "hold", "reprioritise", "move")):
        more = {"reprioritise": (9,), "move": ("elsewhere",)}.get(verb, ())
        day.rig.clock.advance(1)
        getattr(jobs[n], verb)(*more, reason="because")
    day.rig.clock.advance(1)
    jobs[1].release()
    later = day.job("wired").using(queue="steered", delay=600).enqueue(9)
    later.reschedule(day.rig.clock.now.replace(hour=20), "not yet")
    day.job("wired").using(queue="steered", delay=600).enqueue(10).run_now("at once")
    day.app.pause("maintenance", queue="steered", actor="bob")
    day.app.pause("a fault", type="wired")
    day.app.resume(type="wired")
    day.app.pause("off", queue="steered2")
    day.app.select(queue="steered", state="available").cancel("clean up", limit=1)
    bounds = {"concurrency": 2, "backpressure": {"max_depth": 1, "strategy": "reject"}}
    day.ojs.put("/admin/queues/bounded/config", {**bounds, "default_timeout": "PT9S"}).ok()
    day.ojs.push("w.fits", queue="bounded")
    body = {"type": "w.full", "args": [], "options": {"queue": "bounded"}}
    day.ojs.post("/jobs", body).error(429, "QUEUE_FULL")
    day.ojs.put("/rate-limits/k2", {"concurrency": 3, "rate": {"limit": 9, "period": "PT1M"}}).ok()
    for who in ("x", "x", "y"):
        day.job("limited").enqueue(who)
    assert len(day.ojs.fetch("wired", count=3)) == 2
    fair = {"strategy": "round_robin", "queues": ["w", "wired"], "weight": 3}
    day.ojs.put("/admin/pools/both", fair).ok()
    for queue in ("w", "wired"):
        day.ojs.push("w.fair", queue=queue)
        assert len(day.ojs.post("/workers/fetch", {"pool": "both"}).ok()["jobs"]) == 1


def run_workflows(day: Day) -> None:
    plain, doomed, wired = day.job("plain"), day.job("doomed"), day.job("wired")
    day.app.start(chain(plain.bind(1), [plain.bind(2), plain.bind(3)]), name="chain", meta={"a": 1})
    day.app.start(group(plain.bind(4), doomed.bind()), name="group")
    calls = {"on_success": plain.bind(7), "on_failure": wired.bind(), "on_complete": plain.bind(8)}
    day.app.start(batch([plain.bind(5), plain.bind(6)], **calls), name="batch")
    steps = {"a": plain.bind(1), "b": doomed.bind(), "c": plain.bind(9)}
    day.app.start(dag(steps, after={"c": ["a", "b"]}), name="dag")
    gated = day.app.start(stages({"build": plain.bind(1), "ship": wired.bind(2)}, gate=["ship"]))
    day.work()
    day.rig.clock.advance(1)
    gated.approve("ship", "looks good")
    off = day.app.start(stages({"one": wired.bind(4), "two": wired.bind(5)}), name="aborted")
    off.pause("hold on")
    day.rig.clock.advance(1)
    off.resume()
    day.rig.clock.advance(1)
    off.abort("no need")
    steps_ = [{"type": "f.a", "args": []}, {"type": "f.b", "args": []}]
    limits = {"queue": "flows"}
    flow = {"type": "chain", "name": "wire", "steps": steps_, "options": limits}
    day.ojs.post("/workflows", flow).ok(201)
    day.ojs.ack(day.fetch("flows"), 1)
    day.wait(2)
    done = {"on_complete": {"type": "f.done", "args": []}}
    day.ojs.post(
        "/workflows", {"type": "batch", "jobs": steps_, "callbacks": done, "options": limits}
    )
    for job in day.ojs.fetch("flows", count=2):
        day.ojs.ack(job) if job["type"] == "f.a" else day.ojs.nack(job, retryable=False)
    day.wait(2)


def run_jobnik(day: Day) -> None:
    jobnik = day.jobnik
    job = jobnik.job(name="tiles", data={"d": 1}, priority="HIGH", userMetadata={"u": 1})
    first = day.jobnik.stage(job, "cut", userMetadata={"s": 1})
    day.jobnik.tasks(first, 2, maxAttempts=2)
    second = day.jobnik.stage(job, "merge", startAsWaiting=True)
    day.jobnik.tasks(second)
    for status in ("COMPLETED", "FAILED", "COMPLETED"):
        day.jobnik.work("cut", status)
    day.jobnik.release(second).ok()
    day.jobnik.work("merge")
    other = day.jobnik.job(name="stopped")
    day.jobnik.tasks(day.jobnik.stage(other, "never"), 2)
    day.jobnik.ask("PATCH", f"/jobs/{other}/priority", {"priority": "LOW"}).ok()
    day.jobnik.take("never")
    day.jobnik.steer(other, "PAUSED")
    day.jobnik.steer(other, "PENDING")
    day.jobnik.steer(other, "ABORTED")
    day.wait(2)


def push_to_an_engine(day: Day) -> None:
    schema = {"schema": {"type": "object"}}
    day.rest.ask("PUT", "/engine/types/scene", schema).ok()
    names = [
        day.rest.ask("POST", "/engine/jobs", {"jobType": "scene", "payload": {"n": n}}).ok(202)
        for n in range(3)
    ]

    async def run() -> None:
        async with Engine(
            day.server.port, "scene", capacity=1, id="engine-1", boot="boot-1"
        ) as engine:
            done = await engine.job(names[0]["jobId"])
            await engine.ok("job_ack", held(done))
            await engine.ok("job_progress", held(done, progress=40, message="walls"))
            await engine.ok("job_log", held(done, level="info", lines=["one", "two"]))
            await engine.ok("job_complete", held(done, result={"n": 1}))
            failed = await engine.job(names[1]["jobId"])
            await engine.ok("job_ack", held(failed))
            await engine.fail(failed, "SCENE_BUILD", "no floor")
            await engine.job(names[2]["jobId"])
            await engine.ok("drain")

    day.rig.clock.advance(1)
    with day.server.background("dispatch"):
        asyncio.run(run())
        eventually(lambda: day.stored("engine")[0]["data"]["seat"] == "")


def fire_schedules(day: Day) -> None:
    app = day.app
    app.schedules.add("@every 10m", app.jobs["plain"].bind(1), name="often", overlap="allow")
    day.work()
    cron = {"name": "wire.cron", "expression": "@every 5s", "type": "c.fires", "args": [1]}
    day.ojs.post("/cron", {**cron, "options": {"queue": "crons"}}).ok(201)
    day.wait(6)
    day.ojs.ask("PATCH", "/cron/wire.cron", {"enabled": False}).ok()
    day.ojs.post("/cron/wire.cron/trigger").ok()
    day.rig.clock.advance(601)
    day.wait(3)
    app.schedules.pause("often", "enough")
    day.ojs.post("/cron", {**cron, "name": "gone.cron"}).ok(201)
    day.ojs.delete("/cron/gone.cron").ok()


def tell_webhooks(day: Day) -> None:
    with receiving() as url:
        hook = {"url": url, "secret": "s3cret" * 3, "events": ["job.completed"]}
        day.ojs.post("/webhooks/subscriptions", hook).ok(201)
        day.ojs.push("w.heard", queue="heard")
        day.ojs.ack(day.fetch("heard"))

        def delivered(status: str) -> bool:
            found = day.clients[0].get("/webhooks/deliveries").ok()["deliveries"]
            return [one["status"] for one in found] == [status]

        with day.server.background("webhooks"):
            eventually(lambda: delivered("pending"))
        day.wait(1)
        eventually(lambda: delivered("delivered"))


def keep_records(day: Day) -> None:
    uri = {"uri": "urn:mail:1", "type": "x.mail", "version": "1.0", "schema": {"type": "array"}}
    day.ojs.post("/schemas", uri).ok(201)
    day.rig.clock.advance(1)
    day.ojs.put("/admin/schemas/x.mail/1", {"schema": {"type": "array"}}).ok(201)
    day.ojs.post("/workers/register", {"worker_id": "w9", "hostname": "h", "labels": {"gpu": "1"}})
    day.ojs.push("w.stalls", queue="stalls", stall_timeout="PT1M")
    job = day.fetch("stalls", worker="w9")
    day.ojs.put(f"/jobs/{job['id']}/progress", {"worker_id": "w9", "progress": 0.1}).ok()
    made = day.command.data("keys", "create", "--scope", "admin", "--expires-in", "9d")
    # From now on the server asks for it.
    day.clients[0].headers["Authorization"] = f"Bearer {made['key']}"


def rerun_erase_and_forget(day: Day) -> None:
    done = day.job("plain").enqueue(100)
    day.work()
    day.rig.clock.advance(1)
    done.rerun("once more")
    erased = day.job("doomed").using(meta={"gone": 1}).enqueue()
    day.work()
    day.rig.clock.advance(1)
    day.ojs.delete(f"/dead-letter/{erased.id}")
    for n in range(3):
        day.job("plain").using(queue="forgotten").enqueue(n)
    day.work()
    day.wait(5)
    day.command.data("prune", "--completed", "1s", "--queue", "forgotten")


HOURS = (
    enqueue_everything,
    work_with_our_worker,
    lose_our_worker,
    tell_of_a_supervised_worker,
    work_over_the_wire,
    cancel_in_every_form,
    steer_jobs_and_queues,
    run_workflows,
    run_jobnik,
    push_to_an_engine,
    fire_schedules,
    tell_webhooks,
    rerun_erase_and_forget,
    keep_records,
)


@contextmanager
def lived(url: str) -> Iterator[Day]:
    """The day on this store, to its end; the server still runs."""
    rig = Rig()
    rig.app = program(url, rig)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DETENT_SECRET_KEY", KEY)
        patch.setenv("DETENT_WEBHOOK_ALLOW", "127.0.0.0/8")
        numbers = itertools.count(1)
        patch.setattr("secrets.token_hex", lambda size: f"{next(numbers):02x}" * size)
        patch.setattr("secrets.token_urlsafe", lambda size: "ab" * size)
        with serving(url, rig.clock, rig.app) as server:
            day = Day(url, rig, server)
            try:
                day.live()
                yield day
            finally:
                for client in day.clients:
                    client.close()
        rig.app.close()


@contextmanager
def receiving() -> Iterator[str]:
    """An address that takes whatever a webhook sends."""

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook"
        finally:
            server.shutdown()
            thread.join()
