"""Whether two long lists hold the same things, without keeping either.

Everything is hashed and the hashes are added up: sums do not depend on the order. The hash has a
key that is made anew for every run, so nobody can prepare two different lists with equal sums. The
sums are kept per bucket of records; a difference then leads to a few records instead of all.
"""

from __future__ import annotations

import secrets
from array import array
from hashlib import blake2b
from zlib import crc32

from detent.lifecycle.seal import leaf
from detent.stores.api import Fed, Key

_BUCKETS = 65_536
"""So many that a few thousand records, forgotten while we look, leave few others in doubt."""
_MASK = 2**64 - 1


class Sums:
    """Events at their positions, as the histories have them and as the feed has them."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        self._histories = array("Q", bytes(8 * _BUCKETS))
        self._feed = array("Q", bytes(8 * _BUCKETS))

    def from_history(self, fed: Fed) -> None:
        """An event that stands in a history."""
        self._add(self._histories, fed, leaf(fed.event))

    def from_feed(self, fed: Fed, hashed: bytes) -> None:
        """An event that stands in the feed, and its leaf, which the seals need too."""
        self._add(self._feed, fed, hashed)

    def differ(self) -> bool:
        """Whether anything stands on one side only."""
        return self._histories != self._feed

    def differ_for(self, key: Key) -> bool:
        """Whether that may be an event of this record."""
        bucket = _bucket(*key)
        return self._histories[bucket] != self._feed[bucket]

    def _add(self, sums: array[int], fed: Fed, hashed: bytes) -> None:
        digest = blake2b(b"%d" % fed.pos + hashed, key=self._key, digest_size=8).digest()
        bucket = _bucket(fed.event.tenant, fed.event.record)
        sums[bucket] = (sums[bucket] + int.from_bytes(digest)) & _MASK


def _bucket(tenant: str, record: str) -> int:
    return crc32(f"{tenant}\0{record}".encode("utf-8", "surrogatepass")) % _BUCKETS
