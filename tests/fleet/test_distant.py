"""Workers without a database: a server keeps their jobs, and may go away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from detent import Handle, JobFailed, chain
from detent.engine.access import Scope
from detent.runtime.remote.office import LEASE_S
from detent.stores.api import Record
from tests.fleet.diaries import judge_diary, runs_of
from tests.fleet.servers import Served
from tests.fleet.yard import Yard, outlast
from tests.surfaces.server import Client
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def program() -> str:
    return "diary.txt"


# --- what a worker does and does not -------------------------------------------------------------


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Yard, Served]]:
    """A server behind keys, and a worker with one of them; all tests of this part share it."""
    folder = tmp_path_factory.mktemp("town")
    yard = Yard(folder, f"sqlite:///{folder}/detent.db", "distant.txt")
    try:
        key = yard.app.bridge.run(_key(yard))
        server = Served(yard).up()
        told = ("--server", server.url, "--key", key, "--grace", "10s", "--json-logs")
        fleet = yard.start(*told)
        yield yard, server
        for line in yard.log(fleet).splitlines():
            assert json.loads(line)["component"] == "supervisor"
    finally:
        yard.close()


async def _key(yard: Yard) -> str:
    access = (await yard.app.engine()).access
    queues = ["def*", "other"]
    return (await access.create([Scope.WORK, Scope.PRODUCE], queues=queues))[1]


def code_of(handle: Handle[Any]) -> str:
    """Why it failed."""
    with pytest.raises(JobFailed):
        handle.result(timeout=60)
    return str(handle.status().error_code)


def lines_of(handle: Handle[Any]) -> list[str]:
    return [line.text for line in handle.logs()]


def test_what_a_run_says_and_saves_arrives(town: tuple[Yard, Served]) -> None:
    yard, _ = town
    handle = yard.enqueue("everything", "4111-1111")
    assert handle.result(timeout=60) == len("4111-1111")
    assert lines_of(handle) == ["paid with [secret]"]
    names = [event.name for event in handle.history()]
    assert names == ["enqueue", "claim", "checkpointed", "complete"]
    assert handle.status().percent == 40
    eventually(lambda: yard.counts() == {"completed": 2}, "what follows runs too")


def test_a_run_in_a_process_of_its_own_is_the_same(town: tuple[Yard, Served]) -> None:
    yard, _ = town
    handle = yard.enqueue("apart", "word")
    assert handle.result(timeout=60) == "word"
    assert lines_of(handle) == ["apart word"]


def test_a_run_reads_what_the_steps_before_it_returned(town: tuple[Yard, Served]) -> None:
    yard, _ = town
    said, last = yard.app.jobs["said"], yard.app.jobs["last"]
    flow = chain([said.bind("a"), said.bind("b")], last.bind())
    found = yard.app.start(flow).result(timeout=60)
    assert found == [["a", "b"]]


@pytest.mark.parametrize(("job", "code"), [("direct", "no_store"), ("inside", "no_store")])
def test_what_needs_a_database_is_refused(town: tuple[Yard, Served], job: str, code: str) -> None:
    yard, _ = town
    assert code_of(yard.enqueue(job)) == code


def test_a_time_limit_holds(town: tuple[Yard, Served]) -> None:
    yard, _ = town
    assert code_of(yard.enqueue("slow")) == "timeout"


def test_a_cancel_reaches_the_run(town: tuple[Yard, Served]) -> None:
    yard, _ = town
    handle = yard.enqueue("until", "called-off")
    eventually((yard.marks / "called-off.begun").exists)
    handle.cancel()
    eventually(lambda: handle.status().state == "cancelled")
    names = [event.name for event in handle.history()]
    assert names[2:] == ["cancel_requested", "cancel_seen", "interrupted", "cancel"]


def test_a_key_that_opens_nothing_is_told_at_once(town: tuple[Yard, Served]) -> None:
    yard, server = town
    fleet = yard.begin("--server", server.url, "--key", "dtk_no_no", "--name", "strangers")
    assert fleet.wait(60) == 2
    assert "server_refused" in yard.log(fleet)


def test_it_serves_the_queues_that_its_key_is_for(town: tuple[Yard, Served]) -> None:
    yard, _ = town
    closed = yard.enqueue("closed")
    open_one = yard.app.jobs["said"].using(queue="other").enqueue("open")
    assert open_one.result(timeout=60) == "open"
    assert closed.status().state == "available"
    # What its key is for it hears with its first beat, and says with the second.
    eventually(lambda: served(yard) == [["default", "other"]])


def served(yard: Yard) -> list[list[str]]:
    """The queues that the server shows of its workers."""
    records = yard.app.bridge.run(_records(yard))
    return [json.loads(one.data or "")["queues"] for one in records]


async def _records(yard: Yard) -> Sequence[Record]:
    return await (await yard.app.engine()).store.records("ojs-worker")


def test_a_queue_that_the_key_is_not_for_is_told_at_once(town: tuple[Yard, Served]) -> None:
    yard, server = town
    key = yard.app.bridge.run(_key(yard))
    told = ("--server", server.url, "--key", key, "--name", "others")
    fleet = yard.begin(*told, "--queue", "default", "--queue", "closed")
    assert fleet.wait(60) == 2
    assert "for the queues def*, other, and not for closed" in yard.log(fleet)


# --- when something ends --------------------------------------------------------------------------


def test_a_worker_that_dies_frees_its_jobs_at_once_and_others_do_as_they_are_told(
    yard: Yard,
) -> None:
    server = Served(yard).up()
    fleet = yard.start("--server", server.url)
    handle = yard.enqueue("held", 0, "go")
    eventually(yard.diary)
    [worker] = workers_of(server)
    os.kill(worker["pid"], signal.SIGKILL)
    yard.let_go("go")
    assert handle.result(timeout=60) == 0
    stored = yard.app.bridge.run(_stored(yard, handle))
    assert [one.code for one in stored.failures] == ["worker_death"], "its lease had not run out"
    [other] = workers_of(server)
    assert other["id"] != worker["id"]
    obeys(yard, server, other)
    assert fleet.wait(60) == 0, yard.log(fleet)
    assert "the server says so" in yard.log(fleet)


def obeys(yard: Yard, server: Served, worker: dict[str, Any]) -> None:
    """It is quieted, goes on, and is to end."""
    path = f"/admin/workers/{worker['id']}"
    with closing(Client(server.port)) as client:
        client.post(f"{path}/quiet").ok()
        handle = yard.enqueue("inside", 1, 0)
        eventually(lambda: workers_of(server)[0]["last_heartbeat_at"] > worker["last_heartbeat_at"])
        assert not runs_of(yard.diary(), 1), "a quiet worker takes nothing"
        client.post(f"{path}/resume").ok()
        assert handle.result(timeout=60) == 1
        client.post(f"{path}/terminate").ok()


def workers_of(server: Served) -> list[dict[str, Any]]:
    """As the server knows them."""
    with closing(Client(server.port)) as client:
        found: list[dict[str, Any]] = client.get("/admin/workers").ok()["items"]
    return found


async def _stored(yard: Yard, handle: Handle[Any]) -> Any:
    [found] = await (await yard.app.engine()).store.get([("", handle.id)])
    return found


def test_a_server_that_comes_back_finds_the_same_run(yard: Yard) -> None:
    server = Served(yard).up()
    fleet = yard.start("--server", server.url, "--grace", "1s")
    handles = [yard.enqueue("held", number, "go") for number in range(2)]
    eventually(lambda: len(yard.diary()) > 1)
    server.kill()
    yard.let_go("go")
    eventually(lambda: sum(what == "end" for *_, what in yard.diary()) == 2)
    # Nobody has heard of their ends yet.
    server.begin()
    assert [one.result(timeout=60) for one in handles] == [0, 1]
    names = [[event.name for event in one] for one in yard.events_of(handles)]
    assert names == [["enqueue", "claim", "complete"]] * 2
    # What cannot finish in time is given back when the worker is stopped.
    late = yard.enqueue("held", 2, "never")
    eventually(lambda: any(number == "2" for number, *_ in yard.diary()))
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0, yard.log(fleet)
    assert [event.name for event in late.history()][2:] == ["hand_back", "due"]


@pytest.mark.campaign
@pytest.mark.parametrize("who", ["server", "worker"])
def test_whoever_is_silent_for_longer_than_a_lease_has_its_jobs_no_more(
    yard: Yard, who: str
) -> None:
    """The server is away, or the worker stands still: no run goes on beside the one after it."""
    server = Served(yard).up()
    yard.start("--server", server.url)
    handle = yard.enqueue("held", 0, "go")
    eventually(yard.diary)
    [worker] = workers_of(server)
    if who == "server":
        server.kill()
        outlast(LEASE_S + 2.0)
        server.begin()
    else:
        os.kill(worker["pid"], signal.SIGSTOP)
        outlast(LEASE_S + 2.0)
        os.kill(worker["pid"], signal.SIGCONT)
    eventually(lambda: len(runs_of(yard.diary(), 0)) > 1, "it is run again")
    yard.let_go("go")
    assert handle.result(timeout=60) == 0
    judge(yard, [handle])
    [names] = [[event.name for event in one] for one in yard.events_of([handle])]
    assert ("lose" in names) is (who == "worker"), "nobody pays for a server that was away"


# --- two servers ----------------------------------------------------------------------------------


class Scale(NamedTuple):
    jobs: int
    kills: int
    patience_s: float


SCALES = {"sample": Scale(300, 1, 120.0), "full": Scale(20_000, 20, 1_200.0)}


@pytest.mark.parametrize("size", ["sample", pytest.param("full", marks=pytest.mark.campaign)])
@pytest.mark.parametrize("store", ["postgresql"])
def test_no_job_is_lost_or_doubled_when_a_server_is_killed(
    yard: Yard, store: str, size: str
) -> None:
    """Two servers on one PostgreSQL, four workers; each worker may turn to the other server."""
    assert yard.url.startswith(store)
    scale = SCALES[size]
    servers = [Served(yard), Served(yard)]
    urls = [one.up().url for one in servers]
    fleets = [begun(yard, urls, number) for number in range(2)]
    handles: list[Handle[Any]] = []
    for kill in range(scale.kills):
        portion = range(len(handles), scale.jobs * (kill + 1) // scale.kills)
        handles += yard.app.enqueue_many([call(yard, number) for number in portion])
        await_ends(yard, len(handles) - len(portion) // 2, scale)
        victim = servers[kill % 2]
        victim.kill()
        if kill + 1 < scale.kills:
            victim.begin()
            victim.up()
    await_ends(yard, scale.jobs, scale)
    judge(yard, handles)
    for fleet in fleets:
        fleet.send_signal(signal.SIGTERM)
    assert [fleet.wait(60) for fleet in fleets] == [0, 0]


def await_ends(yard: Yard, jobs: int, scale: Scale) -> None:
    eventually(lambda: yard.counts()["completed"] >= jobs, f"{jobs} jobs end", scale.patience_s)


def begun(yard: Yard, urls: list[str], number: int) -> subprocess.Popen[bytes]:
    """Two workers that turn to these servers, every other fleet to the second one first."""
    first = urls[number:] + urls[:number]
    told = [word for url in first for word in ("--server", url)]
    return yard.start(*told, "--workers", "2", "--slots", "8", "--name", f"fleet-{number}")


def call(yard: Yard, number: int) -> Any:
    return yard.app.jobs["inside"].bind(number, 1)


def judge(yard: Yard, handles: Sequence[Handle[Any]]) -> None:
    """Every job has run to its end, never twice at a time, and completed once."""
    histories = yard.events_of(handles)
    ends = [[event.name for event in events].count("complete") for events in histories]
    assert set(ends) == {1}
    judge_diary(yard.diary(), histories)
    assert "all is well" in yard.detent("verify")
