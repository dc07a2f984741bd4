"""The least moving about that puts things in order: weighted isotonic regression."""

from __future__ import annotations

from collections.abc import Sequence


def isotonic(wishes: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The never falling sequence nearest to `wishes` (pool adjacent violators, exact)."""
    pools: list[tuple[float, float, int]] = []
    for wish, weight in zip(wishes, weights, strict=True):
        pools.append((wish, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            last, one = pools.pop(), pools.pop()
            total = one[1] + last[1]
            mean = (one[0] * one[1] + last[0] * last[1]) / total
            pools.append((mean, total, one[2] + last[2]))
    return [mean for mean, _, count in pools for _ in range(count)]
