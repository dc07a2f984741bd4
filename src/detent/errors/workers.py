"""What is wrong with workers and servers, their processes and their supervisors."""

from __future__ import annotations

from detent.errors.root import DetentError


class ProcessError(DetentError):
    """A process that cannot be started, or cannot be spoken to."""

    code = "process_error"


class ChannelBroken(ProcessError):
    """The channel to a process is closed: by its end, or because of what came through it."""

    code = "channel_broken"


class CannotListen(ProcessError):
    """A server cannot listen there: the port is taken, or the address is not of this machine."""

    code = "cannot_listen"


class CommandNotFound(ProcessError):
    """There is no such program, or no such working directory."""

    code = "command_not_found"


class CommandRefused(ProcessError):
    """The file is there, and the system does not execute it."""

    code = "command_refused"


class ContainerError(ProcessError):
    """The command line of the container runtime failed; `fields["said"]` is what it said."""

    code = "container_error"
    retryable = True


class ForkFailed(ProcessError):
    """The system has no room for another process."""

    code = "fork_failed"
    retryable = True


class PoolBroken(ProcessError):
    """A pool process ended, or kept silent, before it could run its first job."""

    code = "pool_broken"


class TooManyFiles(ProcessError):
    """This process, or the whole machine, may open no more files."""

    code = "too_many_files"
    retryable = True


class SupervisorError(DetentError):
    """A supervisor cannot do what it was asked."""

    code = "supervisor_error"


class AlreadyStarted(SupervisorError):
    """A supervisor runs once: it is running, or it has run. Make another one."""

    code = "already_started"


class BadJournal(SupervisorError):
    """The journal cannot be read or written; nothing was done that it does not tell."""

    code = "bad_journal"


class BadSpec(SupervisorError):
    """A slot cannot work as it is described; `fields["field"]` names the value."""

    code = "bad_spec"


class JournalLocked(SupervisorError):
    """Another supervisor uses the directory; `fields["pid"]` is its process."""

    code = "journal_locked"


class NotStarted(SupervisorError):
    """The supervisor is not running, or it is the worker of another one: ask that one."""

    code = "not_started"


class NotSuspendable(SupervisorError):
    """The worker cannot go quiet and come back; it goes on as it was."""

    code = "not_suspendable"


class SlotExists(SupervisorError):
    """A slot of that name is there already."""

    code = "slot_exists"


class StartFailed(SupervisorError):
    """A worker could not be started; `fields` has its `slot`, `status` and `cause`."""

    code = "start_failed"


class SuspendTimeout(SupervisorError):
    """It did not go quiet in the time given; the request was withdrawn and it works on."""

    code = "suspend_timeout"
    retryable = True


class TooManyRestarts(SupervisorError):
    """A supervisor gave up: `fields["workers"]` ended too often for `max_restarts`."""

    code = "too_many_restarts"


class UnknownSlot(SupervisorError):
    """There is no slot of that name."""

    code = "unknown_slot"


class UnknownWorker(SupervisorError):
    """No worker instance is called so."""

    code = "unknown_worker"


class WorkerSilent(SupervisorError):
    """The supervisor of a worker did not carry out what it was told, or did not answer."""

    code = "worker_silent"
    retryable = True


class InstanceLost(DetentError):
    """A worker instance was declared lost, for good; its jobs are others' now."""

    code = "instance_lost"
    retryable = True


class NotQuiet(DetentError):
    """A worker that was to be suspended still had jobs when the time was up; it works on."""

    code = "not_quiet"
    retryable = True


class PackageMissing(DetentError):
    """Something that not everybody needs is not installed; `fields["package"]` is its name."""

    code = "package_missing"


class EngineRefused(DetentError):
    """The server does not take what an engine says; `fields["code"]` is its own word for why."""

    code = "engine_refused"


class EngineInUse(DetentError):
    """Another program is connected under the id of this engine; it must go first."""

    code = "engine_in_use"
    retryable = True
