"""`detent workers logs` and `stacks`: what workers of this machine wrote, and where they stood."""

from __future__ import annotations

import io
import os
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from detent.app.fleet.orders import STATE_DIR
from detent.cli.output import harmless, say
from detent.cli.places import errors_end_the_command
from detent.errors import UnknownWorker
from detent.runtime.process.rotation import Files
from detent.runtime.supervisor.dumps import dumps_in

_LOOK_S: Final = 0.1


StateDir = Annotated[
    Path,
    typer.Option("--state-dir", metavar="DIR", envvar=STATE_DIR, help="Where fleets keep theirs."),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The fleet, if there are several.")
]
HERE: Final = Path(".detent")


def stacks(
    which: Annotated[
        str,
        typer.Argument(metavar="WORKER", help="A slot, or the beginning of an instance's id."),
    ],
    last: Annotated[int, typer.Option("--last", min=1, max=100, help="How many.")] = 1,
    state_dir: StateDir = HERE,
    name: Name = None,
) -> None:
    """Show where the threads of a worker of this machine stood before it was killed."""
    with errors_end_the_command():
        folders = [state_dir / name] if name else sorted(state_dir.glob("*"))
        found = [one for folder in folders for one in dumps_in(folder, which, last)]
        if not found:
            why = f"Nothing is kept of {which!r} in {state_dir}: it was not killed, or not here"
            raise UnknownWorker(why, name=which)
        for instance, text in found[:last]:
            say(harmless(f"{instance}\n{text.rstrip()}\n"))


def logs(
    slot: Annotated[str, typer.Argument(metavar="SLOT", help="Such as worker-1.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")
    ] = False,
    state_dir: StateDir = HERE,
    name: Name = None,
) -> None:
    """Show what a worker of this machine wrote, by its slot."""
    with errors_end_the_command():
        files = _files(state_dir, name, slot)
        with closing(Followed(files)) as followed, suppress(KeyboardInterrupt):
            say(harmless(followed.last(lines)))
            while follow:
                time.sleep(_LOOK_S)
                if text := followed.more():
                    say(harmless(text))


def _files(state_dir: Path, name: str | None, slot: str) -> Files:
    """The log files of that slot, of the only fleet that has them or of the named one."""
    folders = [state_dir / name] if name else sorted(state_dir.glob("*"))
    found = [files for folder in folders if (files := Files(folder / "logs", slot)).existing()]
    if len(found) == 1:
        return found[0]
    if not found:
        where = folders[0] if name else state_dir
        why = f"{where} has nothing of {slot!r}: it has written nothing, or --state-dir is another"
        raise UnknownWorker(why, name=slot)
    names = ", ".join(files.path.parent.parent.name for files in found)
    raise UnknownWorker(f"Several fleets have a {slot}: say --name, one of {names}", name=slot)


class Followed:
    """Log files that somebody writes to and renames meanwhile: nothing is missed or said twice."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._file = io.FileIO(files.existing()[0])
        self._rest = b""

    def close(self) -> None:
        """Read nothing more."""
        self._file.close()

    def last(self, lines: int) -> str:
        """The last lines, from as many files as that takes; reading goes on behind them."""
        found = self._file.readall()
        for path in self._files.existing()[1:]:
            if found.count(b"\n") >= lines:
                break
            found = path.read_bytes() + found
        whole, self._rest = _cut(found)
        shown = whole.splitlines(keepends=True)[-lines:] if lines else []
        return b"".join(shown).decode("utf-8", "replace")

    def more(self) -> str:
        """The whole lines that have come since."""
        data = self._rest + self._file.readall()
        while self._turn():
            data += self._file.readall()
        whole, self._rest = _cut(data)
        return whole.decode("utf-8", "replace")

    def _turn(self) -> bool:
        """Go on with the next younger file, once there is one."""
        paths = self._files.existing()
        own = os.fstat(self._file.fileno())
        at = next((i for i, path in enumerate(paths) if _is_same(path, own)), len(paths))
        if at == 0:
            return False  # It is the youngest, or there is none.
        # One that is not there any more was older than all of them. What it had was read before.
        self._file.close()
        self._file = io.FileIO(paths[at - 1])
        return True


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and the beginning of one."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _is_same(path: Path, own: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), own)
    except FileNotFoundError:
        return False
