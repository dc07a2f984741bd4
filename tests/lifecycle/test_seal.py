"""Canonical bytes, blocks and their chain: one spelling per event, one head per history."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from types import UnionType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import BadHistory, BadProof
from detent.lifecycle.event import Charge, Event, Made
from detent.lifecycle.machine import Actor
from detent.lifecycle.merkle import skip_of
from detent.lifecycle.seal import GENESIS, Block, canonical, head, head_message, leaf, seal

MADE = Made(profile="python", delivery="pull", allowed=3, losses_allowed=3)
BORN = Event(
    tenant="",
    record="0199-a",
    version=1,
    at=1_700_000_000_000_000,
    name="enqueue",
    source=None,
    target="available",
    actor=Actor.USER,
    actor_id="ann",
    command_id="c-1",
    place=7,
    queue="default",
    priority=0,
    held=False,
    made=MADE,
)
# Each character class that JSON writers disagree about, in one event.
ODD = Event(
    tenant='\x00\x1f\x7f"\\/\b\f\n\r\t',
    record="é e\u0301 \u2028 \U0001f600",
    version=2**63 - 1,
    at=-1,
    name="fail",
    source="active",
    target="discarded",
    actor=Actor.WORKER,
    actor_id="",
    command_id="c-2",
    kind="step",
    cause="exhausted",
    code="",
    charged=Charge.BOTH,
)

# ruff: disable[E501]
TEXT_BORN = b'{"actor":"user","actor_id":"ann","at":1700000000000000,"command_id":"c-1","held":false,"made":{"allowed":3,"delivery":"pull","losses_allowed":3,"profile":"python"},"name":"enqueue","place":7,"priority":0,"queue":"default","record":"0199-a","source":null,"target":"available","tenant":"","version":1}'
# ruff: enable[E501]

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
numbers = st.integers(-(2**63), 2**63 - 1)


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.sampled_from(["", "0", "null", "job"]) | words,
    int: st.sampled_from([0, 1]) | numbers,
    bool: st.booleans(),
    type(None): st.none(),
    tuple[str, ...]: st.lists(words, max_size=3).map(tuple),
}


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, dense around those that a careless encoding would confuse."""
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, UnionType):
        return st.one_of([of_type(one) for one in kind.__args__])
    return built(kind) if issubclass(kind, msgspec.Struct) else st.sampled_from(kind)


def built(struct: type[Any]) -> st.SearchStrategy[Any]:
    fields = msgspec.structs.fields(struct)
    return st.builds(struct, **{one.name: of_type(one.type) for one in fields})


def structs_in(kind: Any) -> set[Any]:
    """The struct and those that its fields can hold: everything that is sealed."""
    if isinstance(kind, UnionType):
        return set().union(*(structs_in(one) for one in kind.__args__))
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return set()
    return {kind}.union(*(structs_in(one.type) for one in msgspec.structs.fields(kind)))


events: st.SearchStrategy[Event] = built(Event)


class TestCanonical:
    def test_the_text_is_json_with_sorted_keys_and_nothing_left_to_taste(self) -> None:
        assert canonical(BORN) == b"detent.event.v1\n" + TEXT_BORN

    @pytest.mark.parametrize(
        ("event", "digest"),
        [
            (BORN, "aff496212cfe4a770ca8b413ca86ad4c948af374f59a297a9f3ee106b3853e34"),
            (ODD, "7878c2a5b616c32760a483be03f1781f281781f7fcd47f073e18d83f5ae1197c"),
        ],
    )
    def test_the_format_is_frozen(self, event: Event, digest: str) -> None:
        assert leaf(event).hex() == digest

    @given(events)
    def test_any_json_library_can_write_it(self, event: Event) -> None:
        """Python's own, as the stand-in for other languages."""
        plain = msgspec.to_builtins(event)
        if plain.get("kind") == "job":
            del plain["kind"]
        text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        assert canonical(event) == b"detent.event.v1\n" + text.encode()
        assert leaf(event) == hashlib.sha256(b"\x00" + canonical(event)).digest()

    @given(events)
    def test_the_event_can_be_read_back_so_no_two_events_share_their_bytes(
        self, event: Event
    ) -> None:
        text = canonical(event).removeprefix(b"detent.event.v1\n")
        assert msgspec.json.decode(text, type=Event) == event

    @given(events, events)
    def test_different_events_have_different_bytes(self, one: Event, other: Event) -> None:
        assert (canonical(one) == canonical(other)) is (one == other)

    @given(events, st.data())
    def test_every_single_field_is_covered(self, event: Event, data: st.DataObject) -> None:
        for field in msgspec.structs.fields(Event):
            value = data.draw(of_type(field.type))
            changed = msgspec.structs.replace(event, **{field.name: value})
            assert (canonical(changed) == canonical(event)) is (changed == event)

    @pytest.mark.parametrize("field", ["held", "priority", "cause", "made"])
    def test_nothing_empty_zero_and_false_are_told_apart(self, field: str) -> None:
        values: list[Any] = [None, "", 0, False, "0", "null", "false"]
        seen = {canonical(msgspec.structs.replace(BORN, **{field: value})) for value in values}
        assert len(seen) == len(values)

    def test_a_kind_read_from_a_database_is_as_good_as_the_default(self) -> None:
        """msgspec leaves a default out by identity: an equal string alone would be spelled out."""
        read = msgspec.structs.replace(BORN, kind="".join(["j", "ob"]))
        assert msgspec.json.encode(read) != msgspec.json.encode(BORN)
        assert canonical(read) == canonical(BORN)

    def test_a_new_optional_field_leaves_old_bytes_alone(self) -> None:
        newer: Any = msgspec.defstruct(
            "Newer",
            [("note", str | None, None)],
            bases=(Event,),
            frozen=True,
            omit_defaults=True,
        )
        fields: dict[str, Any] = msgspec.structs.asdict(BORN)
        assert canonical(newer(**fields)) == canonical(BORN)
        assert canonical(newer(**fields, note="")) != canonical(BORN)

    def test_every_default_but_the_kind_exists_only_once(self) -> None:
        """An equal but other object would be sealed in some runs and left out in others."""
        fields = [
            (struct.__name__, one)
            for struct in structs_in(Event)
            for one in msgspec.structs.fields(struct)
        ]
        unsafe = {
            (struct, one.name)
            for struct, one in fields
            if one.default_factory is not msgspec.NODEFAULT
            or not any(one.default is safe for safe in (msgspec.NODEFAULT, None, False, ()))
        }
        assert unsafe == {("Event", "kind")}

    @pytest.mark.parametrize("half", ["\ud800", "ok \udfff ok"])
    @pytest.mark.parametrize("field", ["actor_id", "reason", "record"])
    def test_half_a_surrogate_pair_has_no_bytes_and_says_where_it_stands(
        self, field: str, half: str
    ) -> None:
        event = msgspec.structs.replace(BORN, **{field: half})
        for sealing in (canonical, leaf):
            with pytest.raises(BadHistory, match="version 1: a text of this event") as caught:
                sealing(event)
            assert caught.value.fields == {"record": event.record, "version": 1}
            assert caught.value.message.isascii()

    def test_enums_of_a_machine_are_sealed_as_their_words(self) -> None:
        class Word(StrEnum):
            ENQUEUE = "enqueue"
            JOB = "job"

        spoken = msgspec.structs.replace(BORN, name=Word.ENQUEUE, kind=Word.JOB)
        assert canonical(spoken) == canonical(BORN)


def chain_of(sizes: list[int]) -> list[Block]:
    """Blocks over made-up leaves; number n is at index n - 1."""
    blocks: list[Block] = []
    for size in sizes:
        leaves = [hashlib.sha256(b"%d %d" % (len(blocks), one)).digest() for one in range(size)]
        back = skip_of(len(blocks) + 1)
        blocks.append(
            seal(leaves, blocks[-1] if blocks else None, blocks[back - 1] if back else None)
        )
    return blocks


class TestBlocks:
    def test_the_first_block_starts_from_nothing(self) -> None:
        block = seal([leaf(BORN)], None, None)
        assert block == Block(
            number=1, first_pos=1, count=1, root=leaf(BORN).hex(), previous=GENESIS, skip=GENESIS
        )

    def test_each_block_goes_on_where_the_last_one_ended(self) -> None:
        blocks = chain_of([1, 2, 3, 5, 8])
        assert [block.number for block in blocks] == [1, 2, 3, 4, 5]
        assert [block.first_pos for block in blocks] == [1, 2, 4, 7, 12]
        assert [block.count for block in blocks] == [1, 2, 3, 5, 8]
        heads = [GENESIS, *(head(block) for block in blocks)]
        assert [block.previous for block in blocks] == heads[:-1]
        assert [block.skip for block in blocks] == [heads[skip_of(n)] for n in range(1, 6)]

    def test_the_message_to_sign_is_seven_lines_of_plain_text(self) -> None:
        block = chain_of([1, 2])[1]
        assert head_message(block) == (
            f"detent.block.v1\n2\n2\n2\n{block.root}\n{block.previous}\n{block.skip}\n".encode()
        )
        assert head(block) == hashlib.sha256(head_message(block)).hexdigest()

    def test_the_chain_is_frozen(self) -> None:
        assert (
            head(chain_of([1, 2, 3, 5, 8, 1, 1])[-1])
            == "2adaa93527b51eb9801e2c13dea857d55eb8d3e34bd97bf293d40bbb6854a4b7"
        )

    @pytest.mark.parametrize("field", Block.__struct_fields__)
    def test_every_field_of_a_header_is_in_its_head(self, field: str) -> None:
        block = chain_of([3, 4])[1]
        value = getattr(block, field)
        other = value + 1 if isinstance(value, int) else GENESIS[:-1] + "1"
        assert head(msgspec.structs.replace(block, **{field: other})) != head(block)

    def test_order_is_sealed(self) -> None:
        one, two = leaf(BORN), leaf(ODD)
        assert seal([one, two], None, None).root != seal([two, one], None, None).root

    def test_a_block_without_leaves_is_refused(self) -> None:
        with pytest.raises(BadProof) as caught:
            seal([], None, None)
        assert caught.value.fields == {"reason": "seal", "block": 1, "skip": 0}

    @pytest.mark.parametrize("wrong", [None, 2, 1])
    def test_a_wrong_skip_is_refused(self, wrong: int | None) -> None:
        blocks = chain_of([1, 1, 1])
        skip = blocks[wrong - 1] if wrong else None
        with pytest.raises(BadProof) as caught:
            seal([leaf(BORN)], blocks[2], skip)
        assert caught.value.fields == {"reason": "seal", "block": 4, "skip": 3}
        assert caught.value.message == (
            "A block needs leaves, and the block to skip to (block 4, skip 3)."
        )
