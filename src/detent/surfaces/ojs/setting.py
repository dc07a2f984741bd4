"""What is set about queues: where it is kept, how it is changed, and what holds for a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.engine.caching import Remembered
from detent.engine.paging import all_records
from detent.stores.api import Key, Record
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.configs import USUAL, Config, completed
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.reading import Wanted

KIND: Final = "ojs-queue"


class Setting:
    """Knows what holds for queues, as of a moment ago."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.known: Remembered[Key, Config | None] = Remembered(self._config, desk.now)

    # --- what holds -----------------------------------------------------------------------------

    def is_plain(self, tenant: str, queue: str, now: int) -> bool:
        """Whether nothing is known to be set about its jobs, without asking anybody."""
        found = self.known.fresh((tenant, queue), now)
        return found is not None and (found[0] is None or found[0].is_plain)

    async def completed(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """The same jobs with what their queues say about what they do not say themselves."""
        found: list[Wanted] = []
        for one in wanted:
            key = (one.ask.tenant, one.ask.queue)
            config = await self.known.get(key)
            if config is not None and config.is_deleted:
                await self._revive(key)
            found.append(completed(one, config))
        return found

    async def need_open(self, tenant: str, queue: str) -> None:
        """Refuse new jobs for a queue that takes none."""
        config = await self.known.get((tenant, queue))
        if config is not None and config.is_draining:
            why = f"queue {queue} is draining: it takes no new jobs until it is resumed"
            raise Problem(409, "conflict", why, queue=queue, current_state="draining")

    async def visibility(self, tenant: str, queues: Sequence[str]) -> int | None:
        """How long jobs of these queues are reserved: of one fetch, as long as any says."""
        found = [await self.known.get((tenant, queue)) for queue in queues]
        lengths = [None if one is None else one.visibility_us for one in found]
        known = [one for one in lengths if one is not None]
        return max(known) if len(known) == len(lengths) else None

    # --- what is set ----------------------------------------------------------------------------

    async def get(self, key: Key) -> Config | None:
        """What is set about this queue itself, as it is now."""
        return _read(await self._desk.record(KIND, key))

    async def configs(self, tenant: str) -> dict[str, Config]:
        """What is set about each queue; `_default` is one of them."""
        return {name: one for name, one in await self._all(tenant) if not one.is_deleted}

    async def letting(self, tenant: str, name: str | None) -> Callable[[str], str | None] | None:
        """Where the dead letters of each queue are found; `None` if no other's are under this."""
        configs = await self.configs(tenant) if name is not None else {}
        if all(one.dead_letters != name for one in configs.values()):
            return None
        usual = configs.get(USUAL, Config(0))
        return lambda queue: configs.get(queue, usual).over(usual).dead_letters

    async def gone(self, tenant: str) -> set[str]:
        """The queues that were deleted and that nobody has used since."""
        return {name for name, one in await self._all(tenant) if one.is_deleted}

    async def _all(self, tenant: str) -> list[tuple[str, Config]]:
        """The queues that something is set about, deleted ones too."""
        found = await all_records(self._desk.engine.store, KIND, tenant)
        return [(one.id, config) for one in found if (config := _read(one)) is not None]

    async def change(self, key: Key, change: Callable[[Config], Config]) -> None:
        """Change what is set about a queue as it is when the change is committed."""
        now = self._desk.now()

        def changed(record: Record | None) -> tuple[str, None] | None:
            found = _read(record)
            before = Config(now) if found is None or found.is_deleted else found
            after = change(before)
            if after == before:
                return None
            return msgspec.json.encode(after).decode(), None

        await self._desk.change(KIND, key, changed)
        self._forget(key)

    async def put(self, key: Key, config: Config | None) -> None:
        """Set all of it, or nothing."""
        text = None if config is None else msgspec.json.encode(config).decode()
        await self._desk.change(KIND, key, lambda _: (text, None))
        self._forget(key)

    async def drain(self, key: Key, *, is_draining: bool) -> None:
        """Let it take no new jobs, or take them again."""
        await self.change(key, lambda config: replace(config, is_draining=is_draining))

    async def _revive(self, key: Key) -> None:
        """Somebody uses a queue that was deleted: nothing is set about it, unless that has come."""

        def revived(record: Record | None) -> tuple[None, None] | None:
            found = _read(record)
            return (None, None) if found is not None and found.is_deleted else None

        await self._desk.change(KIND, key, revived)
        self._forget(key)

    def _forget(self, key: Key) -> None:
        self.known.forget(None if key[1] == USUAL else key)

    async def _config(self, key: Key) -> Config | None:
        """What holds for the queue: what is set about it, and what is set about all."""
        names = [(KIND, *key), (KIND, key[0], USUAL)]
        found, usual = map(_read, await self._desk.engine.store.record(names))
        if usual is None:
            return found
        return (Config(0) if found is None else found).over(usual)


def _read(record: Record | None) -> Config | None:
    data = None if record is None else record.data
    return None if data is None else msgspec.json.decode(data, type=Config)
