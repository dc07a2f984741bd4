"""How one hash stands for many things: a tree for the leaves of a block, a chain for the blocks.

The tree is that of RFC 6962. Leaves and inner nodes are hashed with different first bytes, so that
neither can be passed off as the other. An odd last node is carried up as it is, never doubled: a
doubled one would give two different lists of leaves the same root.

The chain is a list in which every block also points further back, by strides of 2^k - 1 (Myers,
"An applicative random-access stack", 1983): any block is reached from any later one in a number
of steps that grows with the logarithm of the length, and appending leaves all others alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence


class GrowingRoot:
    """The root of leaves that come one by one, in the space of one hash per doubling."""

    def __init__(self) -> None:
        self._peaks: list[tuple[int, bytes]] = []

    def add(self, leaf: bytes) -> None:
        """Take the next leaf; two whole trees of one size become one of twice that."""
        size, node = 1, leaf
        while self._peaks and self._peaks[-1][0] == size:
            node = _join(self._peaks.pop()[1], node)
            size *= 2
        self._peaks.append((size, node))

    def hash(self) -> bytes:
        """The root of all leaves so far, at least one: `root_of` them."""
        (_, node), *larger = reversed(self._peaks)
        for _, peak in larger:
            node = _join(peak, node)
        return node


def leaf_hash(data: bytes) -> bytes:
    """The leaf that stands for these bytes."""
    return hashlib.sha256(b"\x00" + data).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The hash that stands for all the leaves, at least one, in their order."""
    return _levels(leaves)[-1][0]


def paths_of(leaves: Sequence[bytes], indexes: Sequence[int]) -> list[list[bytes]]:
    """For each of these leaves the neighbours on its way up to the root, lowest first."""
    levels = _levels(leaves)[:-1]
    return [_path(levels, index) for index in indexes]


def climb(leaf: bytes, index: int, width: int, path: Sequence[bytes]) -> bytes | None:
    """The root above that leaf of a tree of `width` leaves; `None` if the path does not fit it."""
    node, neighbours = leaf, list(reversed(path))
    while width > 1:
        if index ^ 1 < width:
            if not neighbours:
                return None
            neighbour = neighbours.pop()
            node = _join(neighbour, node) if index & 1 else _join(node, neighbour)
        index, width = index >> 1, (width + 1) >> 1
    return None if neighbours else node


def skip_of(number: int) -> int:
    """Which earlier block this one points back to, besides the one before it."""
    rest, width = number, 0
    while rest:
        width = (1 << (rest + 1).bit_length() - 1) - 1
        rest -= width
    return number - width


def route(newest: int, wanted: Collection[int]) -> tuple[int, ...]:
    """The blocks by which the newest leads to all wanted ones, newest first, oldest wanted last."""
    steps, here = [newest], newest
    for goal in sorted(wanted, reverse=True):
        while here > goal:
            jump = skip_of(here)
            here = jump if jump >= goal else here - 1
            steps.append(here)
    return tuple(steps)


def _path(levels: Sequence[Sequence[bytes]], index: int) -> list[bytes]:
    path = []
    for level in levels:
        if index ^ 1 < len(level):
            path.append(level[index ^ 1])
        index >>= 1
    return path


def _join(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """The tree from the leaves up to its one root."""
    levels = [list(leaves)]
    while len(below := levels[-1]) > 1:
        pairs = zip(below[::2], below[1::2], strict=False)
        odd = below[-1:] if len(below) % 2 else []
        levels.append([_join(left, right) for left, right in pairs] + odd)
    return levels
