"""Where the file lies: its address, its permissions, and whether its file system can be trusted."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from detent.errors import BadUrl, StoreRefused, UnsupportedStore

_REMOTE: Final = (
    *("9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs"),
    *("lustre", "ncpfs", "nfs", "nfs3", "nfs4", "orangefs", "smb", "smb2", "smb3", "smbfs"),
    *("virtiofs", "webdav"),
)
_LOCAL_FUSE: Final = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.ntfs-3g"})
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def path_of(url: str) -> Path:
    """The file that `sqlite:///absolute/path` or `sqlite:relative/path` names."""
    rest = url.removeprefix("sqlite:")
    if rest.startswith("//"):
        rest = rest.removeprefix("//")
        if not rest.startswith("/"):
            raise BadUrl(f"{url} names a host; write sqlite:///absolute/path", url=url)
    if not rest or rest.endswith("/") or rest == ":memory:" or "?" in rest or "\0" in rest:
        raise BadUrl(f"{url} names no file; write sqlite:///absolute/path", url=url)
    path = Path(os.path.abspath(rest))  # noqa: PTH100 - `resolve` would follow the last link
    if url == f"sqlite:///{path.name}" and not path.exists():
        # SQLAlchemy and Django mean a relative path by three slashes; as root it would be made.
        why = f"{url} names a file in the root folder; write sqlite:{path.name} for this one"
        raise BadUrl(f"{why}, or sqlite:////{path.name} for that one", url=url)
    return path


def prepare(path: Path) -> None:
    """Make the file if it is missing, readable for its owner alone from its first moment on."""
    need_good(path)
    for name in (path, *lock_paths(path)):
        touch_private(name)


def need_good(path: Path) -> None:
    """Refuse a place where no database may lie; nothing is made, and the file is not touched."""
    folder = path.parent
    if not folder.is_dir():
        raise BadUrl(f"There is no folder {folder}; create it first", path=str(path))
    if path.is_dir():
        raise BadUrl(f"{path} is a folder; name a file in it", path=str(path))
    _need_private_folder(folder)
    need_local(folder.resolve(), _mounts())


def lock_paths(path: Path) -> tuple[Path, Path]:
    """The two files by which processes take turns."""
    return path.with_name(f"{path.name}-turn"), path.with_name(f"{path.name}-lock")


def _need_private_folder(folder: Path) -> None:
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise UnsupportedStore(
            f"Everybody may write to {folder} and so replace the database; chmod o-w it",
            path=str(folder),
            mode=oct(stat.S_IMODE(mode)),
        )


def touch_private(path: Path) -> None:
    """Make the file unless it is there; refuse a link, and one that others may open."""
    # Whoever could put a link here could make us write to a file of their choice.
    if path.is_symlink():
        raise UnsupportedStore(f"{path} is a link; name the file itself", path=str(path))
    descriptor = _opened(path)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    if mode & _OTHERS:
        raise UnsupportedStore(
            f"Others may open {path} (mode {mode:o}); chmod 600 it first",
            path=str(path),
            mode=oct(mode),
        )


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        why = f"This user may not write to {path} ({error.strerror})"
        fix = "use a folder that is theirs, or name another file"
        raise StoreRefused(f"{why}: {fix}", path=str(path)) from error


def need_local(folder: Path, mounts: Iterator[tuple[str, str]]) -> None:
    """Refuse a folder whose locks and shared memory other machines would not see."""
    found = file_system(folder, mounts)
    if found in _REMOTE or (found.startswith("fuse.") and found not in _LOCAL_FUSE):
        raise UnsupportedStore(
            f"{folder} is on a network file system ({found}), where SQLite cannot lock;"
            " choose a local disk, or PostgreSQL",
            path=str(folder),
            file_system=found,
        )


def file_system(folder: Path, mounts: Iterator[tuple[str, str]]) -> str:
    """The kind of file system a folder is on: that of the longest, newest mount above it."""
    best, kind = -1, ""
    for point, found in mounts:
        is_above = point == "/" or f"{folder}/".startswith(f"{point}/")
        if is_above and len(point) >= best:
            best, kind = len(point), found
    return kind


def linux_mounts(text: str) -> Iterator[tuple[str, str]]:
    """Mount points and kinds from the text of /proc/self/mounts."""
    for line in text.splitlines():
        _, point, kind, *_ = line.split(" ")
        # Blanks and backslashes in names are written in octal.
        yield point.encode().decode("unicode_escape").encode("latin-1").decode(), kind


def mac_mounts(text: str) -> Iterator[tuple[str, str]]:
    """Mount points and kinds from what `mount` prints on macOS."""
    for line in text.splitlines():
        _, found, rest = line.partition(" on ")
        point, _, options = rest.rpartition(" (")
        if found:
            yield point, options.rstrip(")").split(",")[0]


def _mounts() -> Iterator[tuple[str, str]]:
    if sys.platform == "darwin":
        listed = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=True)
        return mac_mounts(listed.stdout)
    return linux_mounts(Path("/proc/self/mounts").read_text("utf-8"))
