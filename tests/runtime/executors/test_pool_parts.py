"""The parts of a pool process that can be looked at alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from detent.errors import BadOption, ChannelBroken, DetentError, StoreBusy
from detent.runtime.executors.pool.interrupting import Interrupted, Interruption
from detent.runtime.executors.pool.messages import Fault, error_of, fault_of, word_of
from tests.runtime.process.yard import say


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    """Listening to the signal, in this process."""
    before = signal.getsignal(signal.SIGINT)
    made = Interruption()
    made.install()
    yield made
    signal.signal(signal.SIGINT, before)


def strike() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_signal_interrupts_while_it_is_armed_and_once(interruption: Interruption) -> None:
    strike()
    with pytest.raises(Interrupted), interruption.armed():
        strike()
    strike()
    with interruption.armed():
        try:
            strike()
        except Interrupted:
            strike()


def test_a_message_is_finished_first(interruption: Interruption) -> None:
    told = []

    def speak() -> None:
        with interruption.shielded(), interruption.shielded():
            strike()
            told.append("whole")
        told.append("never")

    with pytest.raises(Interrupted), interruption.armed():
        speak()
    assert told == ["whole"]


def test_what_was_meant_for_the_last_run_does_not_hit_the_next(interruption: Interruption) -> None:
    with interruption.shielded():
        strike()
    with interruption.armed():
        pass


def test_errors_cross_by_their_code() -> None:
    error = error_of(fault_of(BadOption("no", option="x", value=object())))
    assert isinstance(error, BadOption)
    assert error.fields["option"] == "x"
    assert isinstance(error_of(Fault("store_busy", "wait")), StoreBusy)
    assert type(error_of(Fault("of tomorrow", "new"))) is DetentError


@pytest.mark.parametrize("message", [{"kind": "nonsense"}, {"kind": "save"}, {"kind": "noted"}])
def test_what_is_no_message_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(ChannelBroken):
        word_of(message)


def test_a_lifeline_that_is_closed_already_kills() -> None:
    theirs, ours = os.pipe()
    os.close(ours)
    tie = (
        "import sys; from detent.runtime.executors.pool.lifeline import tie; tie(int(sys.argv[1]))"
    )
    ended = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", tie, str(theirs)], pass_fds=[theirs], process_group=0, check=False
    )
    os.close(theirs)
    assert ended.returncode == -signal.SIGKILL


MESS = """
import locale, os, signal
from detent.runtime.executors.pool.surroundings import Surroundings

def seen():
    mask = os.umask(0)
    os.umask(mask)
    signals = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    return os.getcwd(), mask, dict(os.environ), locale.setlocale(locale.LC_ALL), signals

locale.setlocale(locale.LC_ALL, "C.UTF-8")
before, surroundings = seen(), Surroundings()
for _ in range(2):
    os.chdir("/")
    os.umask(0o777)
    os.environ.clear()
    locale.setlocale(locale.LC_ALL, "C")
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(one, signal.SIG_IGN)
    assert all(now != then for now, then in zip(seen(), before))
    surroundings.restore()
    print(seen() == before)
"""


def test_what_a_handler_does_to_its_process_is_undone() -> None:
    assert say(MESS) == ["True", "True"]
