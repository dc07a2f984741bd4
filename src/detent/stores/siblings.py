"""New jobs of one unit are judged against each other too, before any of them is stored."""

from __future__ import annotations

from collections import defaultdict

from detent.lifecycle.job import Job
from detent.stores.shapes import Key, New, Outcome, Taken, Unique


class Siblings:
    """The jobs of one unit that have been judged so far; none of them is stored yet."""

    def __init__(self) -> None:
        self._promised: dict[Key, New] = {}
        self._unique: defaultdict[Key, list[Job]] = defaultdict(list)

    def judge(self, new: New, found: Outcome | None, now: int) -> Outcome | None:
        """The answer to the next one. `found` is what the stored jobs have to say about it."""
        if found is None or (isinstance(found, Taken) and found.what == "unique"):
            found = self._same_key(new, now) or self._same_fingerprint(new, found)
        self._remember(new)
        return found

    def _same_key(self, new: New, now: int) -> Taken | None:
        asked = new.idempotency
        earlier = self._promised.get((new.job.tenant, asked.key)) if asked else None
        if asked is None or earlier is None or earlier.idempotency is None:
            return None
        if earlier.idempotency.expires_at <= now:
            return None
        differs = earlier.idempotency.digest != asked.digest
        return Taken("idempotency", earlier.job, differs=differs)

    def _same_fingerprint(self, new: New, found: Taken | None) -> Taken | None:
        """The oldest that counts; among those of the same moment one that is stored."""
        unique = new.unique
        if unique is None:
            return found
        there = [found.by] if found else []
        beside = self._unique[new.job.tenant, unique.fingerprint]
        there += [job for job in beside if counts(job, unique)]
        return Taken("unique", min(there, key=lambda job: job.created_at)) if there else None

    def _remember(self, new: New) -> None:
        if new.idempotency is not None:
            self._promised[new.job.tenant, new.idempotency.key] = new
        if new.unique is not None:
            self._unique[new.job.tenant, new.unique.fingerprint].append(new.job)


def counts(job: Job, unique: Unique) -> bool:
    """Whether a job of the same fingerprint is in the way of the new one."""
    in_time = unique.since is None or job.created_at >= unique.since
    return in_time and job.state in unique.states
