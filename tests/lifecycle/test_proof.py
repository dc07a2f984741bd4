"""Proofs: a true one is accepted anywhere in any chain, a changed one nowhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import BadProof
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Actor
from detent.lifecycle.merkle import route, skip_of
from detent.lifecycle.seal import (
    Block,
    Entry,
    Proof,
    Sealed,
    canonical,
    check,
    head,
    leaf,
    prove,
    seal,
)

replace = msgspec.structs.replace


def event(record: str, version: int, tenant: str = "", kind: str = "job") -> Event:
    actor = Actor.SYSTEM
    return Event(
        tenant, record, version, 10 * version, "due", "a", "b", actor, "s", "c", kind, place=version
    )


class Log:
    """A feed cut into blocks, as a store would keep it."""

    def __init__(self, *contents: list[Event]) -> None:
        self.contents = dict(enumerate(contents, start=1))
        self.leaves = {number: tuple(map(leaf, found)) for number, found in self.contents.items()}
        self.blocks: dict[int, Block] = {}
        for number in self.contents:
            self.blocks[number] = seal(
                self.leaves[number],
                self.blocks.get(number - 1),
                self.blocks.get(skip_of(number)),
            )

    @property
    def head(self) -> str:
        return head(self.blocks[len(self.blocks)])

    def sealed(self, record: str, tenant: str = "") -> list[Sealed]:
        kept = []
        for number, contents in self.contents.items():
            mine = [
                (i, e) for i, e in enumerate(contents) if (e.tenant, e.record) == (tenant, record)
            ]
            if mine:
                kept.append(Sealed(self.blocks[number], self.leaves[number], tuple(mine)))
        return kept

    def prove(self, record: str, tenant: str = "") -> Proof:
        sealed = self.sealed(record, tenant)
        needed = route(len(self.blocks), {one.block.number for one in sealed})
        return prove(sealed, {number: self.blocks[number] for number in needed})


def small_log() -> Log:
    """Three events of `x` over two blocks among others of the same and of another tenant."""
    return Log(
        [event("y", 1)],
        [event("x", 1), event("x", 1, "t"), event("x", 2)],
        [event("y", 2)],
        [event("y", 3), event("z", 1), event("x", 3), event("y", 4), event("z", 2)],
        [event("z", 3)],
        [event("z", 4), event("z", 5)],
    )


LOG = small_log()
PROOF = LOG.prove("x")


def reason_of(proof: Proof, trusted: str = LOG.head) -> str:
    return str(facts_of(proof, trusted)["reason"])


def facts_of(proof: Proof, trusted: str = LOG.head) -> dict[str, Any]:
    with pytest.raises(BadProof) as caught:
        check(proof, trusted)
    facts = caught.value.fields
    shown = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "reason")
    assert caught.value.message.endswith(f" ({shown}).")
    return facts


def with_first(**changes: Any) -> Proof:
    first, *others = PROOF.entries
    return replace(PROOF, entries=(replace(first, **changes), *others))


def foreign_head(block: dict[str, Any]) -> str:
    keys = ("number", "first_pos", "count", "root", "previous", "skip")
    lines = ["detent.block.v1", *(str(block[key]) for key in keys)]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def foreign_root(entry: dict[str, Any], width: int) -> str:
    node = hashlib.sha256(b"\x00detent.event.v1\n" + entry["event"].encode()).digest()
    path, index = [bytes.fromhex(one) for one in entry["path"]], entry["index"]
    while width > 1:
        if index % 2:
            node = hashlib.sha256(b"\x01" + path.pop(0) + node).digest()
        elif index + 1 < width:
            node = hashlib.sha256(b"\x01" + node + path.pop(0)).digest()
        index, width = index // 2, (width + 1) // 2
    return node.hex()


class TestTrueProofs:
    def test_the_events_come_back_in_order(self) -> None:
        assert check(PROOF, LOG.head) == [event("x", 1), event("x", 2), event("x", 3)]

    def test_proof_and_head_are_all_that_a_third_party_needs(self) -> None:
        data = msgspec.json.encode(PROOF)
        assert check(msgspec.json.decode(data, type=Proof), LOG.head)[-1].version == 3

    def test_a_checker_written_from_the_documentation_alone_agrees(self) -> None:
        plain = json.loads(msgspec.json.encode(PROOF))
        blocks = {one["number"]: one for one in plain["blocks"]}
        heads = {number: foreign_head(one) for number, one in blocks.items()}
        assert heads[max(blocks)] == LOG.head
        for later, earlier in pairwise(plain["blocks"]):
            assert heads[earlier["number"]] in (later["previous"], later["skip"])
        for entry in plain["entries"]:
            assert (
                foreign_root(entry, blocks[entry["block"]]["count"])
                == (blocks[entry["block"]]["root"])
            )
        assert [json.loads(one["event"])["version"] for one in plain["entries"]] == [1, 2, 3]

    def test_it_carries_the_route_and_no_other_block(self) -> None:
        assert [block.number for block in PROOF.blocks] == [6, 5, 4, 3, 2]
        assert [block.number for block in LOG.prove("z").blocks] == [6, 5, 4]

    def test_the_proof_is_frozen(self) -> None:
        digest = hashlib.sha256(msgspec.json.encode(PROOF)).hexdigest()
        assert digest == "941778e97493ee0e28f96163ceebeff2c8799a47933bd9d28f99932d4b8401fb"
        assert LOG.head == "425388760598a6ac84d06a4c05fd69cc0375ae2f0a62f0cf411d2a55f9826938"

    @pytest.mark.parametrize("total", range(1, 20))
    @pytest.mark.parametrize("width", [1, 2, 3, 4, 7])
    def test_a_lone_event_is_proven_in_every_place_of_every_chain(
        self, total: int, width: int
    ) -> None:
        for place in range(total):
            feed = [event("x" if one == place else f"y{one}", 1) for one in range(total)]
            log = Log(*[feed[start : start + width] for start in range(0, total, width)])
            assert check(log.prove("x"), log.head) == [event("x", 1)]

    @given(st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=9), min_size=1))
    def test_every_record_of_every_feed_is_proven_whole(self, feed: list[list[str]]) -> None:
        seen: dict[str, int] = {}
        contents: list[list[Event]] = []
        for names in feed:
            contents.append([])
            for name in names:
                seen[name] = seen.get(name, 0) + 1
                contents[-1].append(event(name, seen[name]))
        log = Log(*contents)
        for name, count in seen.items():
            proven = check(log.prove(name), log.head)
            assert proven == [event(name, version) for version in range(1, count + 1)]

    def test_neighbours_that_are_no_longer_kept_are_not_needed(self) -> None:
        leaves = tuple(leaf(one) for one in LOG.contents[1])
        sealed = Sealed(LOG.blocks[1], leaves, ((0, event("y", 1)),))
        headers = {number: LOG.blocks[number] for number in route(6, [1])}
        assert prove([sealed], headers).entries[0].path == ()


class TestProving:
    @pytest.mark.parametrize("missing", [5, 4, 3, 2])
    def test_a_missing_header_is_asked_for(self, missing: int) -> None:
        headers = {number: block for number, block in LOG.blocks.items() if number != missing}
        with pytest.raises(BadProof) as caught:
            prove(LOG.sealed("x"), headers)
        assert caught.value.fields == {"reason": "prove", "needed": (6, 5, 4, 3, 2)}

    def test_a_block_newer_than_every_header_has_no_place(self) -> None:
        headers = {number: LOG.blocks[number] for number in (1, 2, 3)}
        with pytest.raises(BadProof) as caught:
            prove(LOG.sealed("x"), headers)
        assert caught.value.fields == {"reason": "entry", "block": 4, "index": 2}

    def test_nothing_cannot_be_proven(self) -> None:
        for sealed in ([], [Sealed(LOG.blocks[6], LOG.leaves[6], ())]):
            with pytest.raises(BadProof) as caught:
                prove(sealed, LOG.blocks)
            assert caught.value.fields == {"reason": "prove", "needed": (6,)}

    def test_nothing_can_be_proven_against_no_headers(self) -> None:
        with pytest.raises(BadProof) as caught:
            prove(LOG.sealed("x"), {})
        assert caught.value.fields == {"reason": "prove", "needed": (0,)}

    def test_the_same_block_given_twice_gives_no_longer_history(self) -> None:
        with pytest.raises(BadProof) as caught:
            prove(LOG.sealed("x") * 2, LOG.blocks)
        assert caught.value.fields == {"reason": "version", "version": 2}

    def test_a_history_without_its_beginning_is_refused(self) -> None:
        with pytest.raises(BadProof) as caught:
            prove(LOG.sealed("x")[1:], LOG.blocks)
        assert caught.value.fields == {"reason": "version", "version": 1}

    def test_the_end_of_a_history_can_be_withheld(self) -> None:
        """The limit that the documentation admits: a shorter history is a true one."""
        shorter = prove(LOG.sealed("x")[:1], LOG.blocks)
        assert [one.version for one in check(shorter, LOG.head)] == [1, 2]

    def test_a_store_that_changed_an_event_cannot_prove_it(self) -> None:
        sealed = LOG.sealed("x")
        forged = tuple((index, replace(one, at=0)) for index, one in sealed[1].events)
        with pytest.raises(BadProof) as caught:
            prove([sealed[0], replace(sealed[1], events=forged)], LOG.blocks)
        assert caught.value.fields == {"reason": "path", "block": 4, "index": 2}


def changed(value: Any) -> Iterator[Any]:
    """Every small change of a JSON value: each bit of text, each step of a number, each list."""
    if isinstance(value, str):
        for at, one in enumerate(value):
            yield value[:at] + chr(ord(one) ^ 1) + value[at + 1 :]
        yield from (value + "0", value[:-1] + "\u00e9", value.upper() + " ", value[::-1] + "x")
    elif isinstance(value, int):
        yield from (value + 1, value - 1, -value - 1, value + 2**63, str(value), value + 0.5, None)
    elif isinstance(value, list):
        for at, old in enumerate(value):
            yield value[:at] + value[at + 1 :]
            yield value[: at + 1] + value[at:]
            yield value[:at] + value[at : at + 2][::-1] + value[at + 2 :]
            yield from ([*value[:at], one, *value[at + 1 :]] for one in changed(old))
    else:
        yield {**value, "extra": 1}
        for key, old in value.items():
            yield {other: kept for other, kept in value.items() if other != key}
            yield from ({**value, key: one} for one in changed(old))


class TestChangedProofs:
    def test_the_error_names_what_does_not_fit(self) -> None:
        """One example of each reason with all its facts."""
        first, second, _ = PROOF.entries
        newest, *others = PROOF.blocks
        place = {"block": 2, "index": 0}
        assert [
            facts_of(replace(PROOF, format="x")),
            facts_of(replace(PROOF, blocks=(newest, replace(others[0], skip=""), *others[1:]))),
            facts_of(PROOF, "5a"),
            facts_of(replace(PROOF, blocks=(newest, *others[1:]))),
            facts_of(with_first(block=1)),
            facts_of(with_first(event=second.event)),
            facts_of(replace(PROOF, record="y")),
            facts_of(replace(PROOF, entries=(first, first))),
            facts_of(replace(PROOF, entries=())),
            facts_of(replace(PROOF, entries=(first, second))),
        ] == [
            {"reason": "format", "format": "x"},
            {"reason": "block", "block": 5},
            {"reason": "head", "head": "5a"},
            {"reason": "chain", "block": 4},
            {"reason": "entry", "block": 1, "index": 0},
            {"reason": "path", **place},
            {"reason": "record", "version": 1},
            {"reason": "version", "version": 2},
            {"reason": "version", "version": 1},
            {"reason": "route", "needed": (6, 3, 2)},
        ]

    def test_any_change_anywhere_is_noticed(self) -> None:
        """Every character, number, list and key of the encoded proof, one at a time."""
        plain = msgspec.json.decode(msgspec.json.encode(PROOF))
        # Swapping the last of a list with nothing is the one change that changes nothing.
        changes = [one for one in changed(plain) if one != plain]
        for one in changes:
            with pytest.raises((BadProof, msgspec.ValidationError)):
                check(msgspec.convert(one, Proof), LOG.head)
        assert len(changes) > 2_000

    @pytest.mark.parametrize("bit", range(256))
    def test_any_other_head_is_refused(self, bit: int) -> None:
        other = f"{int(LOG.head, 16) ^ (1 << bit):064x}"
        assert reason_of(PROOF, other) == "head"

    def test_the_head_before_the_newest_is_another_head(self) -> None:
        assert reason_of(PROOF, head(LOG.blocks[5])) == "head"

    def test_without_blocks_there_is_no_head(self) -> None:
        assert reason_of(replace(PROOF, blocks=())) == "head"

    def test_another_format_is_not_guessed_at(self) -> None:
        assert reason_of(replace(PROOF, format="detent.proof.v2")) == "format"

    @pytest.mark.parametrize("field", ["tenant", "kind", "record"])
    def test_a_proof_does_not_serve_for_another_record(self, field: str) -> None:
        assert reason_of(replace(PROOF, **{field: "y"})) == "record"

    def test_an_event_of_another_tenant_does_not_fit_in(self) -> None:
        other = LOG.prove("x", "t").entries[0]
        assert reason_of(replace(PROOF, entries=(other, *PROOF.entries[1:]))) == "record"

    def test_events_cannot_be_left_out_doubled_or_swapped(self) -> None:
        one, two, three = PROOF.entries
        for entries in ((), (two, three), (one, three), (one, one, two), (two, one, three)):
            assert reason_of(replace(PROOF, entries=entries)) == "version"

    def test_a_tail_cut_off_afterwards_leaves_blocks_too_many(self) -> None:
        assert reason_of(replace(PROOF, entries=PROOF.entries[:2])) == "route"

    def test_blocks_beyond_the_route_are_refused(self) -> None:
        assert reason_of(replace(PROOF, blocks=(*PROOF.blocks, LOG.blocks[1]))) == "route"

    def test_blocks_cannot_be_left_out(self) -> None:
        blocks = PROOF.blocks
        for at in range(1, len(blocks) - 1):
            assert reason_of(replace(PROOF, blocks=blocks[:at] + blocks[at + 1 :])) == "chain"
        assert reason_of(replace(PROOF, blocks=blocks[:-1])) == "entry"

    def test_an_event_needs_a_place_in_a_block_of_the_proof(self) -> None:
        for changes in ({"block": 7}, {"block": 1}, {"index": 3}, {"index": -1}):
            assert reason_of(with_first(**changes)) == "entry"

    @pytest.mark.parametrize("field", ["root", "previous", "skip"])
    @pytest.mark.parametrize("at", range(len(PROOF.blocks)))
    def test_a_header_has_one_spelling(self, at: int, field: str) -> None:
        blocks, old = list(PROOF.blocks), getattr(PROOF.blocks[at], field)
        for other in ("A" + old[1:], old + "\n", old[:-1], "g" * 64, "", "\ud800", "\u0660" * 64):
            blocks[at] = replace(PROOF.blocks[at], **{field: other})
            proof = replace(PROOF, blocks=tuple(blocks))
            assert facts_of(proof) == {"reason": "block", "block": blocks[at].number}

    @pytest.mark.parametrize("text", ["\ud800", PROOF.entries[0].event + "\udfff"])
    def test_a_text_without_bytes_was_never_sealed(self, text: str) -> None:
        assert reason_of(with_first(event=text)) == "path"

    def test_a_path_has_one_spelling(self) -> None:
        path = PROOF.entries[0].path
        for other in (path[0].upper(), path[0] + " ", " " + path[0], path[0][:-2], "zz", ""):
            assert reason_of(with_first(path=(other, *path[1:]))) == "path"

    def test_a_path_of_another_length_is_refused(self) -> None:
        path = PROOF.entries[0].path
        for other in ((), path[:-1], (*path, path[0])):
            assert reason_of(with_first(path=other)) == "path"


def sealed_text(text: str) -> tuple[Proof, str]:
    """A proof over whatever text a careless or dishonest sealer put under a root."""
    data = b"\x00detent.event.v1\n" + text.encode()
    block = seal([hashlib.sha256(data).digest()], None, None)
    entry = Entry(event=text, block=1, index=0, path=())
    proof = Proof("detent.proof.v1", "", "job", "x", (entry,), (block,))
    return proof, head(block)


class TestDishonestSealers:
    TEXT = canonical(event("x", 1)).removeprefix(b"detent.event.v1\n").decode()

    def test_the_canonical_text_is_accepted(self) -> None:
        assert check(*sealed_text(self.TEXT)) == [event("x", 1)]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "not json",
            "{}",
            TEXT + " ",
            TEXT.replace(":", ": "),
            TEXT.replace('"at":10', '"at":1e1'),
            TEXT.replace('"at":10', '"at":10,"at":10'),
            TEXT.replace('"at":10', '"at":10,"aux":null'),
            TEXT.replace('"at":10', '"at":10,"cause":null'),
            TEXT.replace('"at":10', '"at":10,"kind":"job"'),
            TEXT.replace('"at":10', '"at":10,"zoo":' + "[" * 100_000),
            TEXT.replace('"due"', '"\\u0064ue"'),
            TEXT.replace('"due"', '"\\ud800"'),
            TEXT.replace('"due"', '"\\udfff"'),
        ],
        ids=range(14),
    )
    def test_any_other_spelling_is_no_event_even_when_it_is_sealed(self, text: str) -> None:
        assert facts_of(*sealed_text(text)) == {"reason": "event", "block": 1, "index": 0}

    @pytest.mark.parametrize(
        "changes",
        [
            {"first_pos": 2},
            {"previous": "0" * 63 + "1"},
            {"skip": "0" * 63 + "1"},
            {"root": "0" * 63 + "A"},
        ],
    )
    def test_a_chain_begins_from_nothing(self, changes: dict[str, Any]) -> None:
        """Whatever head is trusted: a block 1 of another shape has something before it."""
        proof, _ = sealed_text(self.TEXT)
        block = replace(proof.blocks[0], **changes)
        found = facts_of(replace(proof, blocks=(block,)), head(block))
        assert found == {"reason": "block", "block": 1}

    @pytest.mark.parametrize("number", range(2, 9))
    def test_no_block_skips_to_a_block_before_the_first(self, number: int) -> None:
        log = Log(*([event(f"y{one}", 1)] for one in range(number)))
        proof = log.prove(f"y{number - 1}")
        last = replace(log.blocks[number], skip="1" * 64)
        changed_proof = replace(proof, blocks=(last,))
        if skip_of(number) == 0:
            assert facts_of(changed_proof, head(last)) == {"reason": "block", "block": number}
        else:
            assert len(check(changed_proof, head(last))) == 1

    @pytest.mark.parametrize(("first_pos", "is_fine"), [(3, False), (4, True), (5, True)])
    def test_every_block_before_holds_an_event(self, first_pos: int, is_fine: bool) -> None:
        log = Log(*([event(f"y{one}", 1)] for one in range(4)))
        last = replace(log.blocks[4], first_pos=first_pos)
        proof = replace(log.prove("y3"), blocks=(last,))
        if is_fine:
            assert check(proof, head(last)) == [event("y3", 1)]
        else:
            assert facts_of(proof, head(last)) == {"reason": "block", "block": 4}

    @pytest.mark.parametrize(("first_pos", "is_fine"), [(2, False), (3, True), (4, False)])
    def test_neighbouring_blocks_leave_no_gap_and_do_not_overlap(
        self, first_pos: int, is_fine: bool
    ) -> None:
        log = Log([event("x", 1), event("z", 1)], [event("y", 1)])
        second = replace(log.blocks[2], first_pos=first_pos)
        proof = replace(log.prove("x"), blocks=(second, log.blocks[1]))
        if is_fine:
            assert check(proof, head(second)) == [event("x", 1)]
        else:
            assert facts_of(proof, head(second)) == {"reason": "chain", "block": 2}

    @pytest.mark.parametrize(("first_pos", "is_fine"), [(6, False), (7, True), (8, True)])
    def test_a_skip_leaves_room_for_the_blocks_between(self, first_pos: int, is_fine: bool) -> None:
        first = [event("x", 1), event("z", 1)]
        log = Log(*[first, *([event(f"y{one}", 1)] for one in range(5))])
        # Block 6 skips to block 3 at position 4; blocks 4 and 5 hold at least one event each.
        last = replace(log.blocks[6], first_pos=first_pos)
        sealed = Sealed(log.blocks[3], log.leaves[3], ((0, event("y1", 1)),))
        proof = prove([sealed], {number: log.blocks[number] for number in (6, 3)})
        proof = replace(proof, blocks=(last, log.blocks[3]))
        if is_fine:
            assert check(proof, head(last)) == [event("y1", 1)]
        else:
            assert facts_of(proof, head(last)) == {"reason": "chain", "block": 6}

    def test_a_version_sealed_before_an_earlier_one_is_refused(self) -> None:
        log = Log([event("x", 2), event("x", 1)])
        sealed = Sealed(log.blocks[1], log.leaves[1], ((0, event("x", 2)), (1, event("x", 1))))
        with pytest.raises(BadProof) as caught:
            prove([sealed], log.blocks)
        assert caught.value.fields == {"reason": "version", "version": 2}
