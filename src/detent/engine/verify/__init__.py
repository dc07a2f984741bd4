"""Is everything in a store as it was written, and does it fit together?

    verification = Verification(store)
    async for finding in verification.findings(): ...

Every history is replayed and compared with its record, be it a job, a workflow or a step; the feed
with the histories, the seals with the leaves and the leaves with the feed, tallies and counts with
a recount, the rows of leases with who holds one. It only reads, through the protocol that all
stores share; it needs the same memory for a thousand jobs and for millions; and it may run beside
writers and retention: what moved or went while it looked is looked at again before it is accused.
"""

from __future__ import annotations

from detent.engine.verify.finding import Check, Finding
from detent.engine.verify.verification import Seen, Verification

__all__ = ["Check", "Finding", "Seen", "Verification"]
