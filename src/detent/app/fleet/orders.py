"""What a fleet is told when it starts, and what it tells each of its workers."""

from __future__ import annotations

import os
import re
from math import ceil
from pathlib import Path
from typing import Final

import msgspec

from detent.errors import BadOption
from detent.host import working_folder
from detent.runtime.remote.address import Server
from detent.runtime.supervisor.backoff import Backoff
from detent.runtime.supervisor.breaker import Breaker
from detent.runtime.supervisor.spec import OnSick, Probe, Recycle
from detent.runtime.worker.settings import Settings

STATE_DIR: Final = "DETENT_STATE_DIR"
WORKERS_MAX: Final = 256
REMOTE_SLOTS_MAX: Final = 1_000
"""So many jobs one heartbeat can name."""
GRACE_S: Final = 30.0
LOST: Final = 75
"""The exit code of a worker that must make room for another one under another name."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker process is told: which program, which store, and what to work on.

    Without `url` the program itself knows its store; with `server` it needs none, because that one
    keeps the jobs.
    """

    reference: str
    url: str | None = None
    settings: Settings = Settings()
    server: Server | None = None

    def __post_init__(self) -> None:
        if self.server is not None and self.url is not None:
            raise BadOption("Jobs are kept by a store or by a server, not by both", option="server")
        if self.server is not None and self.settings.slots > REMOTE_SLOTS_MAX:
            why = f"A worker of a server runs at most {REMOTE_SLOTS_MAX} jobs at once"
            raise BadOption(f"{why}: start more workers", option="slots")


class Web(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server of a fleet listens, and further options of `detent serve` for it."""

    host: str = "127.0.0.1"
    port: int = 8080
    options: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address to type."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of a fleet.

    `name` tells fleets apart that share a folder for their state; a fleet finds its own again. With
    `upkeep`, which is usual, it also does what time asks for: retries, schedules, deadlines. With
    `web` it has a server too, and at `metrics` its supervisor tells its numbers. `backoff` and
    `breaker` pace the restarts of each worker.
    """

    told: Told
    workers: int = 1
    name: str = "workers"
    state_dir: Path | None = None
    grace_s: float = GRACE_S
    recycle: Recycle | None = None
    backoff: Backoff = Backoff()
    breaker: Breaker = Breaker()
    upkeep: bool = True
    web: Web | None = None
    metrics: Web | None = None
    home: str | None = msgspec.field(default_factory=working_folder)
    """Where all of it begins: what is imported may go elsewhere, and the program is named here."""

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= WORKERS_MAX:
            why = f"workers is how many worker processes there are: from 1 to {WORKERS_MAX}"
            raise BadOption(why, option="workers", value=self.workers)
        if not _NAME.fullmatch(self.name):
            why = "name is the name of a folder: letters, digits, '_', '.' and '-', at most 64"
            raise BadOption(why, option="name", value=self.name[:100])

    @property
    def probe(self) -> Probe:
        """Workers are asked whether they are well; one that never answers again is replaced.

        A worker that can still speak gives up by itself who holds it up, so it has a little longer.
        """
        stall_s, usual = self.told.settings.stall_s, Probe()
        if stall_s is None:
            return usual
        silent = ceil(stall_s / usual.interval_s) + 1
        return Probe(on_sick=OnSick.RESTART, hopeless=silent)

    @property
    def folder(self) -> Path:
        """Where fleets of this folder keep their journals and logs."""
        named = self.state_dir or Path(os.environ.get(STATE_DIR) or ".detent")
        return Path(self.home or "", named)
