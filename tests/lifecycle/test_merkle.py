"""The tree and the chain against independent definitions of both."""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import pairwise
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.lifecycle.merkle import GrowingRoot, climb, leaf_hash, paths_of, root_of, route, skip_of

# The inputs and roots that implementations of Certificate Transparency test themselves with.
PUBLIC_INPUTS = [
    bytes.fromhex(one)
    for one in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
PUBLIC_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def leaves(count: int) -> list[bytes]:
    return [leaf_hash(str(number).encode()) for number in range(count)]


def by_definition(hashes: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, word for word: split at the largest power of two below the size."""
    if len(hashes) == 1:
        return hashes[0]
    split = 1
    while split * 2 < len(hashes):
        split *= 2
    left, right = by_definition(hashes[:split]), by_definition(hashes[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@cache
def myers(number: int) -> int:
    """The jump as its inventor gives it: double the stride when the last two were equal."""
    if number == 0:
        return 0
    parent = number - 1
    near, far = myers(parent), myers(myers(parent))
    return far if parent - near == near - far and parent else parent


@pytest.mark.parametrize("count", range(1, 9))
def test_the_root_is_the_one_that_certificate_transparency_computes(count: int) -> None:
    hashes = [leaf_hash(data) for data in PUBLIC_INPUTS[:count]]
    assert root_of(hashes).hex() == PUBLIC_ROOTS[count - 1]


@pytest.mark.parametrize("count", range(1, 70))
def test_every_leaf_of_every_tree_climbs_to_the_root_of_the_definition(count: int) -> None:
    hashes = leaves(count)
    root = by_definition(hashes)
    assert root_of(hashes) == root
    for index, path in enumerate(paths_of(hashes, range(count))):
        assert climb(hashes[index], index, count, path) == root


@pytest.mark.parametrize("count", range(1, 18))
def test_a_path_fits_its_own_place_only(count: int) -> None:
    hashes = leaves(count)
    root = root_of(hashes)
    for index, other in ((i, j) for i in range(count) for j in range(count) if i != j):
        [path] = paths_of(hashes, [index])
        assert climb(hashes[other], index, count, path) != root
        assert climb(hashes[index], other, count, path) != root


@pytest.mark.parametrize("count", range(1, 18))
def test_a_path_that_is_too_short_or_too_long_fits_nothing(count: int) -> None:
    hashes = leaves(count)
    for index in range(count):
        [path] = paths_of(hashes, [index])
        assert climb(hashes[index], index, count, [*path, hashes[0]]) is None
        if path:
            assert climb(hashes[index], index, count, path[:-1]) is None


def test_doubling_the_last_leaf_changes_the_root() -> None:
    for count in range(1, 20):
        hashes = leaves(count)
        assert root_of(hashes) != root_of([*hashes, hashes[-1]])


def test_a_node_cannot_be_passed_off_as_a_leaf() -> None:
    one, two = leaves(2)
    assert root_of([one, two]) != leaf_hash(one + two)


def test_skips_follow_the_published_recurrence() -> None:
    assert [skip_of(number) for number in range(12)] == [0, 0, 1, 0, 3, 4, 3, 0, 7, 8, 7, 10]
    assert all(skip_of(number) == myers(number) for number in range(2_000))


def test_a_route_takes_declared_steps_only_and_few_of_them() -> None:
    for newest in range(1, 130):
        for goal in range(1, newest + 1):
            steps = route(newest, [goal])
            assert (steps[0], steps[-1]) == (newest, goal)
            pairs = pairwise(steps)
            assert all(earlier in (later - 1, skip_of(later)) for later, earlier in pairs)
            assert len(steps) <= 3 * log2(newest + 1) + 1


@given(st.integers(1, 10**9), st.sets(st.integers(1, 10**9), min_size=1, max_size=5))
def test_one_route_passes_every_wanted_block_and_stops_at_the_oldest(
    newest: int, wanted: set[int]
) -> None:
    wanted = {min(one, newest) for one in wanted}
    steps = route(newest, wanted)
    assert wanted <= set(steps)
    assert steps[-1] == min(wanted)
    assert list(steps) == sorted(set(steps), reverse=True)
    assert len(steps) <= 3 * log2(newest + 1) * len(wanted) + 1


def test_no_wish_needs_only_the_newest() -> None:
    assert route(7, ()) == (7,)


def test_a_root_that_grows_leaf_by_leaf_is_the_root_of_all_of_them() -> None:
    growing, taken = GrowingRoot(), []
    for leaf in leaves(70):
        growing.add(leaf)
        taken.append(leaf)
        assert growing.hash() == root_of(taken)
