"""Every exception Detent raises, in one tree.

    DetentError
    ├── IllegalTransition      a move that the lifecycle table does not allow
    ├── BadMachine             a lifecycle table that contradicts itself (found at import)
    ├── BadHistory             a history that no legal life could have produced
    ├── BadProof               an inclusion proof that does not lead to the sealed head
    ├── BadPolicy              a retry policy or workflow shape with an impossible value
    ├── BadArguments           arguments that do not fit the signature of their job
    ├── BadOption              an option of a job that cannot be, or not beside another one
    ├── BadResult              a result that is no JSON, or not of the promised type
    ├── BadSignature           a function that cannot be a job as it is written
    ├── InsideLoop             a synchronous call where an event loop runs (await its twin)
    ├── JobCancelled           the job whose result was asked for was called off
    ├── JobExists              a unique job, or another request under the same key, is in the way
    ├── JobFailed              the job whose result was asked for failed for good
    ├── ResultTimeout          the job has not ended in time (it goes on)
    ├── OpenToAll              a server that others could reach, in front of a store without keys
    ├── UnknownKey             there is no such API key in this store
    ├── UnknownJob             there is no such job in this store
    ├── UnknownWorkflow        there is no such workflow in this store
    ├── WorkflowAborted        the workflow whose result was asked for was called off
    ├── WorkflowFailed         the workflow whose result was asked for failed
    ├── LimitError             more of something than one call or one job may have
    │   ├── NameTooLong        a name, tag or key with too many characters, or none
    │   ├── PayloadTooDeep     arguments nested too deeply
    │   ├── PayloadTooLarge    arguments with too many bytes
    │   ├── ResultTooLarge     a result or checkpoint with too many bytes
    │   └── TooMany            too many jobs in one call, or too many tags on one job
    ├── SecretError            a secret that cannot be locked or unlocked
    │   ├── BadSecretKey       a key, or the file it is in, that cannot be used
    │   ├── NoSecretKey        no key to lock a secret with (set DETENT_SECRET_KEY)
    │   └── SecretUnreadable   a locked value that was changed, or whose key is not here
    ├── WebhookError           a webhook that cannot be, or that cannot be delivered to
    │   ├── AddressRefused     an address that we do not connect to (private, local, no TLS, ...)
    │   ├── BadWebhook         a webhook with an impossible address, event or secret
    │   ├── PostFailed         nobody answered, or no answer that we understand (try again)
    │   └── UnknownWebhook     no webhook, or no delivery, of that id
    ├── BadSchedule            a schedule that says no times, or no job that could be made
    ├── ScheduleExists         a schedule of that name is there already (edit it)
    ├── UnknownSchedule        no schedule of that name
    └── StoreError             a store that cannot do what it was asked
        ├── BadName            a name that no database can keep (leave NUL and half characters out)
        ├── BadUrl             an address that names no store
        ├── BatchTooLarge      more in one call than a store does at once (split it)
        ├── ClockAhead         an instant that lies in the store's future
        ├── ReadTooLong        a question that took too long to answer (ask for less)
        ├── SchemaAhead        tables that are newer than this code
        ├── SchemaBehind       tables that are older than this code and must be migrated
        ├── StoreBroken        an open store that must not go on (open it again)
        ├── StoreBusy          somebody else had the lock for too long (try again)
        ├── StoreClosed        a call before the store was opened or after it was closed
        ├── StoreCorrupt       the database contradicts itself
        ├── StoreFull          no space is left (try again when there is)
        ├── StoreOpen          a store that was opened already (open another one)
        ├── StoreRefused       the database does not let us in
        ├── StoreUnavailable   the database cannot be reached (try again)
        ├── UnfitUnit          a unit that is more than new jobs, inside somebody's own transaction
        ├── UnknownConnection  somebody's own connection, of a kind that we do not know
        ├── Unstorable         a decision that the database refuses: a fault of ours (report it)
        ├── UnsupportedStore   a database, version or file system that cannot be trusted
        └── WrongIsolation     a transaction that would not see who was faster

Each carries a stable `code`, whether trying again can help, and its facts as fields, so that no
caller ever has to read the message. The message says what happened, why, and what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AddressRefused",
    "BadArguments",
    "BadHistory",
    "BadMachine",
    "BadName",
    "BadOption",
    "BadPolicy",
    "BadProof",
    "BadResult",
    "BadSchedule",
    "BadSecretKey",
    "BadSignature",
    "BadUrl",
    "BadWebhook",
    "BatchTooLarge",
    "ClockAhead",
    "DetentError",
    "IllegalTransition",
    "InsideLoop",
    "JobCancelled",
    "JobExists",
    "JobFailed",
    "LimitError",
    "NameTooLong",
    "NoSecretKey",
    "OpenToAll",
    "PayloadTooDeep",
    "PayloadTooLarge",
    "PostFailed",
    "ReadTooLong",
    "ResultTimeout",
    "ResultTooLarge",
    "ScheduleExists",
    "SchemaAhead",
    "SchemaBehind",
    "SecretError",
    "SecretUnreadable",
    "StoreBroken",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreOpen",
    "StoreRefused",
    "StoreUnavailable",
    "TooMany",
    "UnfitUnit",
    "UnknownConnection",
    "UnknownJob",
    "UnknownKey",
    "UnknownSchedule",
    "UnknownWebhook",
    "UnknownWorkflow",
    "Unstorable",
    "UnsupportedStore",
    "WebhookError",
    "WorkflowAborted",
    "WorkflowFailed",
    "WrongIsolation",
]


class DetentError(Exception):
    """Something Detent refuses; `code` is stable, `fields` hold the facts."""

    code: ClassVar[str] = "detent_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class IllegalTransition(DetentError):
    """The lifecycle does not allow this move from this state by this actor."""

    code = "illegal_transition"


class BadMachine(DetentError):
    """A lifecycle table contradicts itself; nothing can run until it is mended."""

    code = "bad_machine"


class BadHistory(DetentError):
    """A history breaks a rule of its lifecycle at the version named in the fields."""

    code = "bad_history"


class BadProof(DetentError):
    """A proof of inclusion does not lead to the head it is checked against."""

    code = "bad_proof"


class BadPolicy(DetentError):
    """A retry policy or workflow shape has a value that cannot work; `fields["field"]` names it."""

    code = "bad_policy"


class BadArguments(DetentError):
    """The arguments do not fit the signature; `fields["path"]` names the value that does not."""

    code = "bad_arguments"


class BadOption(DetentError):
    """An option has a value that cannot be, or stands beside one that excludes it."""

    code = "bad_option"


class BadResult(DetentError):
    """A result cannot be written as JSON, or is not what the function promised to return."""

    code = "bad_result"


class BadSignature(DetentError):
    """The function cannot be a job as it is written; the message says what to change."""

    code = "bad_signature"


class InsideLoop(DetentError):
    """A synchronous call would have stopped the event loop it was made in; await its twin."""

    code = "inside_loop"


class JobCancelled(DetentError):
    """The job was called off, so there is no result; `fields["cause"]` says how."""

    code = "job_cancelled"


class JobExists(DetentError):
    """Another job is in the way; `fields["id"]` is the one, `fields["what"]` the reason."""

    code = "job_exists"


class JobFailed(DetentError):
    """The job was discarded, so there is no result; `fields["error_code"]` says what went wrong."""

    code = "job_failed"


class ResultTimeout(DetentError, TimeoutError):
    """The job has not ended in the time given; nothing happened to it, so ask again."""

    code = "result_timeout"
    retryable = True


class OpenToAll(DetentError):
    """Nobody but this host may reach a server that asks for no key; make one first."""

    code = "open_to_all"


class UnknownKey(DetentError):
    """There is no API key of that id."""

    code = "unknown_key"


class UnknownJob(DetentError):
    """There is no such job: another store, another tenant, or it was forgotten."""

    code = "unknown_job"


class UnknownWorkflow(DetentError):
    """There is no such workflow: another store, another tenant, or it was forgotten."""

    code = "unknown_workflow"


class WorkflowAborted(DetentError):
    """The workflow was called off, so there is no result."""

    code = "workflow_aborted"


class WorkflowFailed(DetentError):
    """The workflow failed, so there is no result; `fields["steps"]` names the steps that did."""

    code = "workflow_failed"


class LimitError(DetentError):
    """More than is allowed; `fields` has `limit` (its name), `most` and `value`."""

    code = "limit_exceeded"


class NameTooLong(LimitError):
    """A name must have at least one character, and no more than an index can carry."""

    code = "name_too_long"


class PayloadTooDeep(LimitError):
    """Arguments are nested deeper than every reader of JSON can follow."""

    code = "payload_too_deep"


class PayloadTooLarge(LimitError):
    """Arguments are larger than a row that is read at every claim should be."""

    code = "payload_too_large"


class ResultTooLarge(LimitError):
    """A result or checkpoint is larger than a row should be."""

    code = "result_too_large"


class TooMany(LimitError):
    """Too many of something in one call or on one job."""

    code = "too_many"


class SecretError(DetentError):
    """A secret cannot be locked or unlocked; no key and no value is ever in the message."""

    code = "secret_error"


class BadSecretKey(SecretError):
    """A key is no key, or its file can be read by others; `fields["where"]` names the place."""

    code = "bad_secret_key"


class NoSecretKey(SecretError):
    """There is no key outside the database, so nothing secret is stored in it."""

    code = "no_secret_key"


class SecretUnreadable(SecretError):
    """A locked value does not open: it was changed or moved, or this process lacks its key."""

    code = "secret_unreadable"


class WebhookError(DetentError):
    """A webhook cannot be as it was asked for, or cannot be delivered to."""

    code = "webhook_error"


class AddressRefused(WebhookError):
    """Nothing was sent: the address is not one that strangers may make us connect to."""

    code = "address_refused"


class BadWebhook(WebhookError):
    """A webhook has a value that cannot work; `fields["field"]` names it."""

    code = "bad_webhook"


class PostFailed(WebhookError):
    """There was no answer, or none that is HTTP; whether the request arrived is unknown."""

    code = "post_failed"
    retryable = True


class UnknownWebhook(WebhookError):
    """There is no webhook, or no delivery, of that id."""

    code = "unknown_webhook"


class BadSchedule(DetentError):
    """A schedule cannot work; `fields["field"]` names what is wrong with it."""

    code = "bad_schedule"


class ScheduleExists(DetentError):
    """A schedule of that name is there already."""

    code = "schedule_exists"


class UnknownSchedule(DetentError):
    """There is no schedule of that name."""

    code = "unknown_schedule"


class StoreError(DetentError):
    """A store cannot do what it was asked; nothing of the call was committed, unless it says so."""

    code = "store_error"


class BadName(StoreError):
    """A name with NUL, half a character, or a number beyond 64 bits: no database can keep it."""

    code = "bad_name"


class BadUrl(StoreError):
    """The address names no store that we know."""

    code = "bad_url"


class BatchTooLarge(StoreError):
    """More in one call than a store does at once; split it, nothing is lost by that."""

    code = "batch_too_large"


class ClockAhead(StoreError):
    """The caller's `now` is further ahead of the store's own clock than clocks may differ."""

    code = "clock_ahead"


class ReadTooLong(StoreError):
    """A question took longer to answer than anybody should wait; ask for less."""

    code = "read_too_long"


class SchemaAhead(StoreError):
    """The tables were made by newer code; this code must not write to them."""

    code = "schema_ahead"


class SchemaBehind(StoreError):
    """The tables were made by older code and must be migrated first."""

    code = "schema_behind"


class StoreBroken(StoreError):
    """After an I/O error an open store acknowledges nothing any more; only opening it again helps.

    Whether the call that met the error was committed is unknown until then.
    """

    code = "store_broken"


class StoreBusy(StoreError):
    """Somebody else held the lock for longer than we wait."""

    code = "store_busy"
    retryable = True


class StoreClosed(StoreError):
    """The store was not opened yet, or is closed already."""

    code = "store_closed"


class StoreCorrupt(StoreError):
    """The database contradicts itself: stop, keep the file, restore from a backup."""

    code = "store_corrupt"


class StoreFull(StoreError):
    """No space is left where the database lives; what was committed is safe."""

    code = "store_full"
    retryable = True


class StoreOpen(StoreError):
    """This store object is open already; the database itself may be opened once more."""

    code = "store_open"


class StoreRefused(StoreError):
    """The database does not let us in: a wrong password, a missing database, a missing right."""

    code = "store_refused"


class StoreUnavailable(StoreError):
    """The database cannot be reached; whether the last call was committed may be unknown."""

    code = "store_unavailable"
    retryable = True


class UnfitUnit(StoreError):
    """Inside somebody's own transaction jobs come into being, and nothing else is changed."""

    code = "unfit_unit"


class UnknownConnection(StoreError):
    """Somebody's own connection, of a kind that we do not know how to use."""

    code = "unknown_connection"


class Unstorable(StoreError):
    """The database refused what was decided. Nothing was stored, and the fault is Detent's."""

    code = "unstorable"


class UnsupportedStore(StoreError):
    """A database, a version of one or a file system whose promises are too weak for ours."""

    code = "unsupported_store"


class WrongIsolation(StoreError):
    """The caller's transaction sees too little of others to promise that something is unique."""

    code = "wrong_isolation"
