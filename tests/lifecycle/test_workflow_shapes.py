"""The usual graphs, and every graph that is refused."""

from __future__ import annotations

import pytest

from detent.errors import BadPolicy
from detent.lifecycle.workflow import (
    EDGES_MAX,
    STEPS_MAX,
    Condition,
    Fails,
    Policy,
    StepPlan,
    WhenEmpty,
    batch,
    chain,
    check_graph,
    dag,
    group,
    stages,
)


class TestShapes:
    def test_a_chain_is_one_after_the_other(self) -> None:
        assert [(s.id, s.depends_on) for s in chain("a", "b", "c")] == [
            ("a", ()),
            ("b", ("a",)),
            ("c", ("b",)),
        ]

    def test_a_group_depends_on_nothing_and_fails_when_all_are_done(self) -> None:
        assert group("a", "b") == (
            StepPlan("a", (), Policy(Fails.WHEN_ALL_DONE)),
            StepPlan("b", (), Policy(Fails.WHEN_ALL_DONE)),
        )

    def test_a_batch_is_a_group_with_callbacks_after_all_of_it(self) -> None:
        plans = batch("a", "b", on_complete="c", on_success="s", on_failure="f")
        assert plans[:2] == group("a", "b")
        assert [(p.id, p.depends_on, p.policy.condition) for p in plans[2:]] == [
            ("c", ("a", "b"), Condition.ALWAYS),
            ("s", ("a", "b"), Condition.SUCCESS),
            ("f", ("a", "b"), Condition.FAILURE),
        ]

    def test_a_dag_is_sorted_so_that_dependencies_come_first_and_order_is_kept(self) -> None:
        plans = dag({"d": ("b", "c"), "c": ("a",), "b": ("a",), "a": (), "e": ()})
        assert [plan.id for plan in plans] == ["a", "c", "b", "d", "e"]

    def test_stages_hold_when_empty_and_may_have_gates(self) -> None:
        first, second = stages("a", "b", gate=["b"])
        assert first.policy == Policy(Fails.AT_FIRST, when_empty=WhenEmpty.WAIT)
        assert second.policy == Policy(Fails.AT_FIRST, when_empty=WhenEmpty.WAIT, gate=True)
        assert second.depends_on == ("a",)

    @pytest.mark.parametrize(
        ("steps", "field", "step", "words"),
        [
            ((), "steps", None, "^workflow shape: a workflow shape needs at least one step$"),
            ((StepPlan("a"), StepPlan("a")), "id", "a", "twice"),
            ((StepPlan(""),), "id", "", "^workflow shape: a step needs an id$"),
            ((StepPlan("a", ("a",)),), "depends_on", "a", "itself"),
            ((StepPlan("a", ("x",)),), "depends_on", "a", "unknown step 'x'"),
            ((StepPlan("a"), StepPlan("b", ("a", "a"))), "depends_on", "b", "dependency twice"),
            (
                (StepPlan("a", policy=Policy(condition=Condition.FAILURE)),),
                "condition",
                "a",
                "failure of nothing",
            ),
        ],
    )
    def test_a_graph_that_cannot_work_is_refused_by_name(
        self, steps: tuple[StepPlan, ...], field: str, step: str | None, words: str
    ) -> None:
        with pytest.raises(BadPolicy, match=words) as caught:
            check_graph(steps)
        assert (caught.value.fields["field"], caught.value.fields.get("step")) == (field, step)

    def test_a_cycle_is_refused_with_its_path(self) -> None:
        with pytest.raises(BadPolicy) as caught:
            dag({"a": ("b",), "b": ("c",), "c": ("d", "e"), "d": ("b",), "e": ()})
        assert caught.value.message == (
            "workflow shape: steps depend on each other: b -> c -> d -> b"
        )
        path = ("b", "c", "d", "b")
        assert caught.value.fields == {"field": "depends_on", "step": "b", "path": path}

    @pytest.mark.parametrize(("size", "shown"), [(19, 20), (20, 20)])
    def test_a_cycle_is_shown_up_to_twenty_names(self, size: int, shown: int) -> None:
        ring = {str(n): (str((n + 1) % size),) for n in range(size)}
        with pytest.raises(BadPolicy) as caught:
            dag(ring)
        words = caught.value.message.split(": ")[-1].split(" -> ")
        assert len(words) == shown
        assert (words[-1] == "...") == (size == 20)

    def test_a_long_cycle_is_shown_in_part_and_told_whole(self) -> None:
        ring = {str(n): (str((n + 1) % STEPS_MAX),) for n in range(STEPS_MAX)}
        with pytest.raises(BadPolicy, match=r"18 -> \.\.\.$") as caught:
            dag(ring)
        assert len(caught.value.fields["path"]) == STEPS_MAX + 1

    def test_the_largest_graph_passes_and_one_more_step_does_not(self) -> None:
        names = [str(n) for n in range(STEPS_MAX + 1)]
        assert len(chain(*names[:-1])) == STEPS_MAX
        with pytest.raises(BadPolicy) as caught:
            chain(*names)
        assert caught.value.fields == {"field": "steps"}
        assert caught.value.message == "workflow shape: 10001 steps; at most 10000"

    def test_too_many_dependencies_are_refused(self) -> None:
        names = tuple(str(n) for n in range(EDGES_MAX // 20))
        wide = {f"w{n}": names for n in range(21)}
        all_but_one = dict(list(wide.items())[:20])
        assert len(dag({**dict.fromkeys(names, ()), **all_but_one})) == len(names) + 20
        with pytest.raises(BadPolicy) as caught:
            dag({**dict.fromkeys(names, ()), **wide})
        assert caught.value.fields == {"field": "depends_on"}
        assert caught.value.message == "workflow shape: too many dependencies; at most 100000"

    def test_a_batch_without_callbacks_and_a_gate_without_stage_are_refused(self) -> None:
        with pytest.raises(BadPolicy) as caught:
            batch("a")
        assert caught.value.fields == {"field": "callbacks"}
        assert caught.value.message == (
            "workflow shape: a batch needs at least one callback; without any it is a group"
        )
        with pytest.raises(BadPolicy) as caught:
            stages("a", gate=["z", "y"])
        assert caught.value.fields == {"field": "gate"}
        assert caught.value.message == (
            "workflow shape: the gate names no stage of this workflow: y, z"
        )

    @pytest.mark.parametrize("shape", [chain, group, stages])
    def test_an_empty_list_is_refused(self, shape: object) -> None:
        assert callable(shape)
        with pytest.raises(BadPolicy, match="at least one step"):
            shape()
