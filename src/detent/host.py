"""The processes of this host: which one is meant, whether it is gone, who belongs to a session.

A pid is used again, and the same pid means another process in another container. So a process is
named by host, boot, the namespace its pid is seen in, pid and start time together; worker rows,
the journals of supervisors and the guardian all take these values from here.

Only the standard library is used, and nothing else of ours: the guardian runs this file bare.
Linux reads `/proc`; elsewhere (macOS) `ps` is asked, which is slower and coarser.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Final

LINUX: Final = sys.platform == "linux"
ECHO_S: Final = 0.1
"""A signal so soon after another is the same wish, told twice: Ctrl-C reaches everybody in a
terminal, and parents that hear it (`timeout`, runners of Procfiles) tell us too. Whichever signals
they are: of two that wait for us the later may be heard first."""
TURNED_S: Final = 0.5
"""So long a parent may take to turn Ctrl-C into SIGTERM: a shell with `trap 'kill 0' EXIT` does so
at once, one in Python that waits for us after a quarter of a second."""
_PROC: Final = Path("/proc")
_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The number that every kernel gives to the namespace of the whole machine."""
_STATE, _PARENT, _START = 0, 1, 19
"""Places in `/proc/PID/stat`, counted after the name (which may contain anything)."""
_GONE: Final = ("Z", "X")
_PS_SECONDS: Final = 5


def working_folder() -> str | None:
    """Where this process is now; nothing if that folder has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109 - as text, to be told to others
    except OSError:
        return None


def is_echo(number: int, before: int, since_s: float) -> bool:
    """Whether a signal is the wish of the one before it, told again by a parent of ours."""
    is_turned = (before, number) == (signal.SIGINT, signal.SIGTERM)
    return since_s < (TURNED_S if is_turned else ECHO_S)


def host_name() -> str:
    """The name of this machine, or of the container that we take for one."""
    return os.uname().nodename or "localhost"


@cache
def boot_id() -> str:
    """The boot, and the pid namespace within it: pids mean something only inside both.

    Two containers on one machine share the boot and may share the host name, but a pid of the one
    is nobody, or somebody else, in the other. Nothing where the system does not tell.
    """
    if not LINUX:
        return ask("sysctl", "-n", "kern.bootsessionuuid") or ask("sysctl", "-n", "kern.boottime")
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        space = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""
    return boot if space == _FIRST_PID_NAMESPACE else f"{boot}/{space}"


def start_time(pid: int) -> int | None:
    """When the kernel started this process, in microseconds; `None` if there is none.

    On Linux it counts from the boot, not from 1970: the kernel's answer to the latter moves when
    somebody sets the clock, and a living process must not look like another one because of that.
    """
    if LINUX:
        stat = _stat(pid)
        return int(stat[_START]) * 1_000_000 // os.sysconf("SC_CLK_TCK") if stat else None
    return _ps_start(pid)


def is_alive(pid: int, process_at: int) -> bool:
    """Whether that very process still runs: a recycled pid is another one, a zombie is dead."""
    return start_time(pid) == process_at and state_of(pid) not in (None, *_GONE)


def is_gone(pid: int, process_at: int) -> bool:
    """Whether it is certain that this process has ended.

    That is more than not to be seen alive: what cannot be read may be hidden from us, and is there
    as long as the kernel knows its number.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    started = start_time(pid)
    return started is not None and (started != process_at or state_of(pid) in _GONE)


def state_of(pid: int) -> str | None:
    """The kernel's letter for its state (`T` is stopped, `Z` a zombie), or `None` if it is gone."""
    if LINUX:
        stat = _stat(pid)
        return stat[_STATE] if stat else None
    return ask("ps", "-o", "stat=", "-p", str(pid))[:1] or None


def name_of(pid: int) -> str:
    """What a person would call it."""
    if not LINUX:
        return ask("ps", "-o", "comm=", "-p", str(pid))
    try:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def pids() -> list[int]:
    """Every process that can be seen from here."""
    if LINUX:
        return [int(entry) for entry in os.listdir(_PROC) if entry.isdecimal()]  # noqa: PTH208
    return [int(word) for word in ask("ps", "-axo", "pid=").split()]


def members(session: int) -> list[int]:
    """The living processes of a session, whatever group they are in."""
    return [p for p in pids() if _session(p) == session and state_of(p) not in (None, *_GONE)]


def children(parent: int) -> list[int]:
    """The children of a process, dead ones that nobody has reaped included (Linux only)."""
    if not LINUX:
        return []
    found = ((pid, _stat(pid)) for pid in pids())
    return [pid for pid, stat in found if stat and int(stat[_PARENT]) == parent]


def signal_session(session: int, number: int) -> list[int]:
    """Send a signal to all of a session, and name whom it was sent to. Never to our own."""
    if session in (0, os.getsid(0)):
        return []
    return [pid for pid in members(session) if signal_member(pid, session, number)]


def signal_member(pid: int, session: int, number: int) -> bool:
    """Signal a process if it is of that session; on Linux not even a fast recycling can fool it."""
    try:
        if not LINUX:
            os.kill(pid, number)
            return True
        handle = os.pidfd_open(pid)
        try:
            if _session(pid) != session:
                return False
            signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
    except OSError:
        return False
    return True


def kill_session(session: int, leader_at: int) -> list[int]:
    """Kill what is left of a session; its leader's start time says whether it is still the same.

    The number of a session is not given away while it has members, so with the leader gone it is
    the old one as long as anybody is in it.
    """
    started = start_time(session)
    if started is not None and started != leader_at:
        return []
    return signal_session(session, signal.SIGKILL)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    return text[text.rfind(b")") + 1 :].decode("ascii", "replace").split() or None


def _ps_start(pid: int) -> int | None:
    """macOS: in whole seconds, which is what `ps` tells."""
    from datetime import UTC, datetime  # noqa: PLC0415 (Linux never needs it, and it costs time)

    text = ask("ps", "-o", "lstart=", "-p", str(pid))
    if not text:
        return None
    at = datetime.strptime(text, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    return int(at.timestamp()) * 1_000_000


def ask(*command: str) -> str:
    """What one of the system's own small programs says; nothing if it cannot."""
    import subprocess  # noqa: PLC0415 (Linux never needs it, and it costs time)

    try:
        done = subprocess.run(  # noqa: S603 (a constant command, found by the system's path)
            command,
            capture_output=True,
            check=False,
            text=True,
            timeout=_PS_SECONDS,
            env={"LC_ALL": "C", "PATH": os.defpath, "TZ": "UTC"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
