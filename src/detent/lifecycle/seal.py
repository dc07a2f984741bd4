"""Tamper evidence: events become leaves, leaves a block, blocks a chain, and a chain has one head.

Whoever keeps the newest head (a line in a log book, a signature) can later be shown a proof of one
record's history and check it alone, without the database and without trusting it.

The format, version 1, complete enough to write a checker in any language. A *hash* is SHA-256; in
JSON it is 64 lowercase hex digits. `||` joins bytes; nothing else is between the parts.

    text      the event as JSON: keys sorted, no spaces, UTF-8 unescaped, fields at their default
              left out, no floats. A proof carries this text, so a checker need not produce it.
    leaf      hash(0x00 || "detent.event.v1\\n" || text)
    node      hash(0x01 || left || right)
    root      level by level over the leaves in feed order: neighbours are joined, an odd last one
              is carried up as it is (the tree of RFC 6962). A block has at least one event.
    head      hash(message); `message` is seven lines, each ended by "\\n": detent.block.v1,
              number, first_pos, count (in decimal), root, previous, skip
    previous  the head of block number - 1; for block 0, which does not exist, 64 zeros (skip too)
    skip      the head of block `skip_of(number)`: take the largest 2^k - 1 that still fits off the
              number until nothing is left, then put the last one back (7 -> 0, 6 -> 3, 5 -> 4)

Block 1 holds the feed positions from 1; each block goes on where the one before ended. A `Proof`
is checked in this order, and `check` raises `BadProof` with the word of the step as `reason`:

    format    `format` is "detent.proof.v1"
    block     root, previous and skip of every block are hashes; a block starts at a position not
              below its number, block 1 at 1; what points to block 0 is 64 zeros
    head      the first of `blocks` has the trusted head
    chain     each following block is the `previous` or the `skip` of the one before it, by number
              and by head, and leaves room for exactly the blocks between, one event each or more
    entry     each entry names one of these blocks and an index below its count
    path      leaf and path lead to the root: at each level the next hash of the path joins from the
              left at an odd index, from the right at an even one; an odd last node takes none
    event     the text is exactly the canonical text of an event
    record    tenant, kind and record are those of the proof
    version   versions are 1, 2, 3, ... with no gap, at strictly growing feed positions
    route     `blocks` are exactly those that `route` needs

It costs one header (about 350 bytes of JSON) per step from the newest block to each one needed, at
most 3 * log2(blocks), and per event its text and log2(block size) hashes. It cannot show that the
record has no later events, not yet sealed or withheld by the prover (gaps it does exclude), nor
that every skip is honest; sealing the whole chain again from its leaves would show that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final, NoReturn

import msgspec

from detent.errors import BadHistory, BadProof
from detent.lifecycle.event import Event
from detent.lifecycle.merkle import climb, leaf_hash, paths_of, root_of, route, skip_of

GENESIS: Final = "0" * 64
_EVENT_LABEL: Final = b"detent.event.v1\n"
_BLOCK_LABEL: Final = "detent.block.v1"
_PROOF_FORMAT: Final = "detent.proof.v1"
_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(Event).decode
_is_hash = re.compile(r"[0-9a-f]{64}").fullmatch
_DEFAULT_KIND: Final[str] = Event.__struct_defaults__[0]

_FAULTS: Final = {
    "seal": "A block needs leaves, and the block to skip to",
    "prove": "A proof needs events, and all the headers on the way to their blocks",
    "format": f"This version of Detent reads {_PROOF_FORMAT} only; check with a newer one",
    "block": "A header cannot be that of a sealed block; the proof was changed, ask for a new one",
    "head": "The newest block is not the trusted head's; get that head from where it is kept",
    "chain": "Two blocks do not belong together; the proof was changed, ask for a new one",
    "entry": "An event has no place in these blocks; the proof was changed, ask for a new one",
    "path": "An event is not the one that was sealed; do not trust where it came from",
    "event": "A sealed text is no event of this version of Detent; check with a newer one",
    "record": "An event belongs to another record; ask for a proof of the one you mean",
    "version": "A version is missing or out of order; ask for the whole history",
    "route": "The blocks are not exactly the ones needed; ask for a new proof",
}

# Decoded numbers are bounded, so that no hostile proof costs more than its own size to check.
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The header of a sealed run of the feed; `head` of it is what the next block builds on."""

    number: _Count
    first_pos: _Count
    count: _Count
    root: str
    previous: str
    skip: str


class Sealed(msgspec.Struct, frozen=True):
    """What `prove` needs of one block: all its leaves, and the record's events by their index.

    Leaves are asked for rather than events, so that a proof outlives its neighbours' retention.
    """

    block: Block
    leaves: tuple[bytes, ...]
    events: tuple[tuple[int, Event], ...]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One event as its canonical text, and the way from it to the root of its block."""

    event: str
    block: _Count
    index: _Index
    path: tuple[str, ...]


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One record's history, oldest event first, and the blocks up to the newest, newest first."""

    format: str
    tenant: str
    kind: str
    record: str
    entries: tuple[Entry, ...]
    blocks: tuple[Block, ...]


def canonical(event: Event) -> bytes:
    """The bytes that are sealed: equal for equal events, different for different ones."""
    return _EVENT_LABEL + _text(event)


def leaf(event: Event) -> bytes:
    """The hash that stands for the event in its block."""
    return leaf_hash(canonical(event))


def seal(leaves: Sequence[bytes], last: Block | None, skip: Block | None) -> Block:
    """The block that follows `last` (`None`: the first) with these leaves, in feed order.

    `skip` is the block of number `skip_of(last.number + 1)`, `None` for number 0. An auditor seals
    what is stored again and compares: an equal block means that leaves, order and links are whole.
    """
    number = last.number + 1 if last else 1
    needed = skip_of(number)
    if not leaves or (skip.number if skip else 0) != needed:
        _fail("seal", block=number, skip=needed)
    return Block(
        number=number,
        first_pos=last.first_pos + last.count if last else 1,
        count=len(leaves),
        root=root_of(leaves).hex(),
        previous=head(last) if last else GENESIS,
        skip=head(skip) if skip else GENESIS,
    )


def head_message(block: Block) -> bytes:
    """What is hashed into the head, and what a key outside the database signs."""
    return (
        f"{_BLOCK_LABEL}\n{block.number}\n{block.first_pos}\n{block.count}\n"
        f"{block.root}\n{block.previous}\n{block.skip}\n"
    ).encode()


def head(block: Block) -> str:
    """The hash that stands for this block and everything before it."""
    return hashlib.sha256(head_message(block)).hexdigest()


def prove(sealed: Sequence[Sealed], headers: Mapping[int, Block]) -> Proof:
    """The proof for the one record whose events are given, against the newest of the headers.

    `headers` needs the blocks that `route` names for the newest block and those of the events. The
    result has passed `check`: whatever is missing or does not fit raises `BadProof` here.
    """
    newest = max(headers, default=0)
    steps = route(newest, {one.block.number for one in sealed})
    entries = sorted((each for one in sealed for each in _entries(one)), key=lambda each: each[0])
    if not entries or any(number not in headers for number in steps):
        _fail("prove", needed=steps)
    first = next(event for one in sealed for _, event in one.events)
    proof = Proof(
        format=_PROOF_FORMAT,
        tenant=first.tenant,
        kind=first.kind,
        record=first.record,
        entries=tuple(entry for _, entry in entries),
        blocks=tuple(headers[number] for number in steps),
    )
    check(proof, head(headers[newest]))
    return proof


def check(proof: Proof, head: str) -> list[Event]:
    """The proven events, versions 1 to n; `BadProof` with a `reason` if anything does not fit."""
    if proof.format != _PROOF_FORMAT:
        _fail("format", format=proof.format)
    for block in proof.blocks:
        _check_block(block)
    blocks = _checked_chain(proof.blocks, head)
    events = [_checked_event(entry, blocks) for entry in proof.entries]
    _check_life(proof, events, blocks)
    needed = route(proof.blocks[0].number, {entry.block for entry in proof.entries})
    if needed != tuple(block.number for block in proof.blocks):
        _fail("route", needed=needed)
    return events


def _text(event: Event) -> bytes:
    # A default is left out when it is the same object, not an equal one, and a kind that was read
    # from a database is another object. The other defaults (None, False, ()) exist only once.
    if event.kind is not _DEFAULT_KIND and event.kind == _DEFAULT_KIND:
        event = msgspec.structs.replace(event, kind=_DEFAULT_KIND)
    try:
        return _encode(event)
    except UnicodeEncodeError:
        raise BadHistory(
            f"{event.record!a} version {event.version}: a text of this event has half a"
            " surrogate pair, which no bytes can stand for; mend it where it comes from",
            record=event.record,
            version=event.version,
        ) from None


def _entries(sealed: Sealed) -> Iterator[tuple[int, Entry]]:
    """The entries of one block, each with its version to sort by."""
    paths = paths_of(sealed.leaves, [index for index, _ in sealed.events])
    for (index, event), path in zip(sealed.events, paths, strict=True):
        hashes = tuple(one.hex() for one in path)
        yield event.version, Entry(_text(event).decode(), sealed.block.number, index, hashes)


def _check_block(block: Block) -> None:
    """Before anything is hashed: a header has one spelling, and a chain one beginning."""
    is_spelled = all(_is_hash(one) for one in (block.root, block.previous, block.skip))
    is_placed = block.first_pos == 1 if block.number == 1 else block.first_pos >= block.number
    links = ((block.number - 1, block.previous), (skip_of(block.number), block.skip))
    is_rooted = all(number or link == GENESIS for number, link in links)
    if not (is_spelled and is_placed and is_rooted):
        _fail("block", block=block.number)


def _checked_chain(blocks: Sequence[Block], trusted: str) -> dict[int, Block]:
    if not blocks or head(blocks[0]) != trusted:
        _fail("head", head=trusted)
    for later, earlier in pairwise(blocks):
        _check_link(later, earlier)
    return {block.number: block for block in blocks}


def _check_link(later: Block, earlier: Block) -> None:
    links = ((later.number - 1, later.previous), (skip_of(later.number), later.skip))
    if (earlier.number, head(earlier)) not in links:
        _fail("chain", block=earlier.number)
    between = later.number - earlier.number - 1
    gap = later.first_pos - earlier.first_pos - earlier.count
    if gap < between or (gap and not between):
        _fail("chain", block=later.number)


def _checked_event(entry: Entry, blocks: Mapping[int, Block]) -> Event:
    """The event, read only after its text was found under the root: nothing unsealed is parsed."""
    place = {"block": entry.block, "index": entry.index}
    block = blocks.get(entry.block)
    if block is None or not 0 <= entry.index < block.count:
        _fail("entry", **place)
    try:
        text = entry.event.encode()
    except UnicodeEncodeError:
        _fail("path", **place)
    if not _is_under(text, entry, block):
        _fail("path", **place)
    try:
        event = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        _fail("event", **place)
    if _text(event) != text:
        _fail("event", **place)
    return event


def _is_under(text: bytes, entry: Entry, block: Block) -> bool:
    # `fromhex` takes capitals and spaces too; a proof has one spelling only.
    if not all(_is_hash(one) for one in entry.path):
        return False
    path = [bytes.fromhex(one) for one in entry.path]
    root = climb(leaf_hash(_EVENT_LABEL + text), entry.index, block.count, path)
    return root is not None and root.hex() == block.root


def _check_life(proof: Proof, events: Sequence[Event], blocks: Mapping[int, Block]) -> None:
    if not events:
        _fail("version", version=1)
    key, last_pos = (proof.tenant, proof.kind, proof.record), 0
    for version, (entry, event) in enumerate(zip(proof.entries, events, strict=True), start=1):
        if (event.tenant, event.kind, event.record) != key:
            _fail("record", version=event.version)
        pos = blocks[entry.block].first_pos + entry.index
        if event.version != version or pos <= last_pos:
            _fail("version", version=version)
        last_pos = pos


def _fail(reason: str, **fields: Any) -> NoReturn:
    facts = ", ".join(f"{name} {value}" for name, value in fields.items())
    raise BadProof(f"{_FAULTS[reason]} ({facts}).", reason=reason, **fields)
