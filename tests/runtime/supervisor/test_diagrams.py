"""The pictures say what the snapshots say, in a language that names cannot break out of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from detent.lifecycle.worker import EDGE_EVENTS, WorkerState
from detent.runtime.supervisor.diagrams import (
    KINDS,
    STATUSES,
    state_diagram,
    system_diagram,
    tree_diagram,
)
from detent.runtime.supervisor.snapshot import Snapshot
from detent.runtime.supervisor.tasks import Tasks
from detent.runtime.supervisor.tree import Tree
from tests.runtime.supervisor.stage import CRASH, Numbers, Stage
from tests.runtime.supervisor.test_restarting import live

TREE = Snapshot(
    name="top",
    path="",
    kind="supervisor",
    status="Running",
    children=(
        Snapshot("p", "p", "process", "Running", pid=17, health="healthy"),
        Snapshot("c", "c", "container", "Failed", health="unhealthy"),
        Snapshot("f", "f", "function", "Pending", reason="backoff"),
        Snapshot(
            "x",
            "x",
            "something",
            "Pending",
            metadata=(("restarts", "3"), ("circuit_breaker", "triggered")),
        ),
    ),
)


def test_the_tree() -> None:
    """W-95, W-91, behaviour 21: ids, arrows, one shape, icon and class per kind."""
    text = tree_diagram(TREE)
    assert text.startswith("graph TD\n")
    for number in range(4):
        assert f"    root --> root_{number}\n" in text
    assert 'root{{"<b>🧠 top</b><br/>Running"}}:::supervisor' in text
    assert 'root_0["<b>⚙️ p</b><br/>Running ❤️<br/>PID 17"]:::process' in text
    assert 'root_1[["<b>📦 c</b><br/>Failed 💔"]]:::container' in text
    assert 'root_2("<b>λ f</b><br/>Pending<br/><i>backoff</i>"):::function' in text
    assert "🔄 3<br/><b>🚫 CIRCUIT BREAKER</b>" in text
    assert ":::other" in text
    assert "    class root_1 failed\n" in text
    for name in (*KINDS, *WorkerState):
        assert f"    classDef {name} " in text


def test_no_two_states_look_alike() -> None:
    """W-93: failed and stopping did."""
    assert set(STATUSES) == set(WorkerState)
    assert len(set(STATUSES.values())) == len(STATUSES)


def test_styles_may_be_replaced() -> None:
    """W-93."""
    mine = dict.fromkeys(STATUSES, ("#000", "#111", "#222"))
    for text in (tree_diagram(TREE, mine), system_diagram(TREE, "None", mine)):
        assert "classDef running fill:#000,stroke:#111,color:#222" in text
    some = tree_diagram(TREE, {"running": ("#000", "#111", "#222")})
    assert "classDef running fill:#000" in some
    assert "classDef failed fill:#f1aeb5" in some, "what is not named stays"


@pytest.mark.parametrize("name", ['"]; click root "x"', "<script>", "a\nb", "x--> y"])
def test_names_are_data(name: str) -> None:
    """W-94."""
    text = tree_diagram(replace(TREE, name=name))
    (node,) = [line for line in text.splitlines() if line.startswith("    root{{")]
    label = node.split("🧠 ")[1].split("</b>")[0]
    assert not set('"<>\n[]{}') & set(label)


def test_the_system() -> None:
    """W-92."""
    text = system_diagram(TREE, "Signal:Interrupt")
    assert "control -->|governs| supervision" in text
    assert text.count("subgraph") == 2
    assert "Signal:Interrupt" in text


async def test_the_states_of_one_instance(stage: Stage) -> None:
    """W-90, behaviour 21: all edges, the current state active, the exit code only at the end."""
    supervisor = await stage.running(stage.spec("a"))
    one = live(supervisor, "a")
    text = state_diagram("a", stage.journal.history(one.id))
    assert text.startswith("stateDiagram-v2\n")
    for source, target in EDGE_EVENTS:
        assert f"    {source} --> {target}: " in text
    assert "    class running active\n" in text
    assert f"PID {one.record.pid}" in text
    assert "exit code" not in text
    stage.last("a").die(CRASH)
    await stage.clock.settle()
    text = state_diagram("a", stage.journal.history(one.id))
    assert "    class failed active\n" in text
    assert "exit code 1, exit" in text
    assert "active" not in state_diagram("a", [])


async def test_what_is_counted(stage: Stage) -> None:
    """W-112, W-115: once each, with bounded labels."""
    supervisor = await stage.running(stage.spec("a"))
    stage.last("a").die(CRASH)
    await stage.clock.advance(5)
    await stage.during(supervisor.stop())
    counts = stage.numbers.counts
    assert counts["lifecycle_workers_started_total"] == 2
    assert counts["lifecycle_workers_failed_total"] == 1
    assert counts["lifecycle_workers_stopped_total"] == 1
    assert stage.numbers.labels["lifecycle_exits_total"] == [
        {"status": "failed", "cause": "exit_code"},
        {"status": "stopped", "cause": "requested"},
    ]
    assert stage.numbers.values["lifecycle_backoff_triggered_seconds"] == [1]
    states = {labels["state"] for labels in stage.numbers.labels["lifecycle_state_seconds"]}
    assert states == {"created", "pending", "starting", "running", "stopping"}
    restarted = {"supervisor": "supervisor", "child": "a"}
    assert stage.numbers.labels["lifecycle_worker_restarts_total"] == [restarted]


async def test_background_work_is_counted() -> None:
    """W-112: tasks are what has no other name, and a failed one is nobody's to hear of."""
    numbers = Numbers()
    tasks = Tasks(numbers)

    async def fail() -> None:
        raise OSError

    async def keep() -> str:
        return "kept"

    await asyncio.wait({tasks.run(fail(), "failing")})
    assert await tasks.kept(keep(), "keeping") == "kept"
    assert numbers.counts == {"lifecycle_tasks_started_total": 2, "lifecycle_tasks_failed_total": 1}


class Away:
    """A collector that cannot be reached."""

    def count(self, name: str, labels: Mapping[str, str]) -> None:
        raise OSError(name, labels)

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        raise OSError(name, value, labels)


async def test_a_collector_that_fails_costs_no_move(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """W-113: it was written down, and then nobody knew of it."""
    stage.tree.metrics = Tree(stage.journal, metrics=Away()).metrics
    supervisor = await stage.running(stage.spec("a"))
    await stage.during(supervisor.stop())
    assert supervisor.snapshot().children[0].status == "Stopped"
    assert caplog.text.count("the collection of numbers fails") == 1
