"""Which process of this host is meant."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from detent import host
from tests.runtime.process.yard import child, is_gone, python, say
from tests.waiting import eventually


def test_a_process_is_its_pid_and_its_start() -> None:
    one = child("sleep", "1000")
    try:
        at = host.start_time(one.pid)
        assert at is not None
        assert host.is_alive(one.pid, at)
        # The same pid with another start is another process: a recycled one.
        assert not host.is_alive(one.pid, at + 10_000)
        assert host.is_gone(one.pid, at + 10_000)
        assert not host.is_gone(one.pid, at)
        one.kill()
        eventually(lambda: host.state_of(one.pid) == "Z")
        assert not host.is_alive(one.pid, at), "a zombie is dead"
        assert host.is_gone(one.pid, at), "for certain"
    finally:
        one.kill()
        one.wait()
    assert host.start_time(one.pid) is None
    assert host.state_of(one.pid) is None
    assert host.name_of(one.pid) == ""


def test_the_start_time_is_the_kernels_and_does_not_move() -> None:
    own = host.start_time(os.getpid())
    assert own == host.start_time(os.getpid())
    assert own is not None
    parent = host.start_time(os.getppid())
    assert parent is not None
    assert parent <= own


def test_host_and_boot_are_the_same_in_every_process() -> None:
    code = "from detent import host as i; print(i.host_name()); print(i.boot_id())"
    assert say(code) == [host.host_name(), host.boot_id()]
    assert host.boot_id()


def test_a_session_has_all_its_members_and_no_others() -> None:
    code = "import subprocess as s, os; a = s.Popen(['sleep', '1000']);"
    code += (
        "b = s.Popen(['sleep', '1000'], process_group=0); print(a.pid, b.pid, flush=True); b.wait()"
    )
    leader = child(*python(code), start_new_session=True, stdout=subprocess.PIPE)
    assert leader.stdout is not None
    with leader.stdout:
        both = [int(word) for word in leader.stdout.readline().split()]
        try:
            assert set(host.members(leader.pid)) == {leader.pid, *both}
            assert leader.pid in host.children(os.getpid())
            assert not host.signal_member(os.getppid(), leader.pid, 0), "of another session"
            at = host.start_time(leader.pid)
            assert at is not None
            assert host.kill_session(leader.pid, at + 10_000) == [], "a recycled number"
            assert not is_gone(leader.pid)
        finally:
            host.signal_session(leader.pid, signal.SIGKILL)
            leader.wait()
    eventually(lambda: all(is_gone(pid) for pid in both))
    assert host.members(leader.pid) == []


def test_our_own_session_is_never_signalled() -> None:
    assert host.signal_session(os.getsid(0), 0) == []
    assert host.signal_session(0, 0) == []


def test_a_program_that_is_missing_or_hangs_has_nothing_to_say() -> None:
    assert host.ask("there-is-no-such-program") == ""
    assert host.ask("echo", "a") == "a"


def test_without_proc_the_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What macOS would do; `ps` says the same things here."""
    exact = host.start_time(os.getpid())
    monkeypatch.setattr(host, "LINUX", False)
    one = child("sleep", "1000", start_new_session=True)
    at = host.start_time(one.pid)
    assert at is not None
    assert abs(at / 1_000_000 - time.time()) < 30
    assert at != exact
    assert host.is_alive(one.pid, at)
    assert host.name_of(one.pid) == "sleep"
    assert host.members(one.pid) == [one.pid]
    assert host.kill_session(one.pid, at) == [one.pid]
    assert one.wait() == -signal.SIGKILL
    assert host.start_time(one.pid) is None
    assert host.state_of(one.pid) is None
    assert not host.signal_member(one.pid, one.pid, 0)
    assert host.children(os.getpid()) == []
    host.boot_id.cache_clear()
    assert isinstance(host.boot_id(), str)
    host.boot_id.cache_clear()
