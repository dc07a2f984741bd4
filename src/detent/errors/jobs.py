"""What is wrong with jobs, programs, limits, secrets, schedules and webhooks."""

from __future__ import annotations

from detent.errors.root import DetentError


class AmbiguousId(DetentError):
    """Several jobs, or workers, have an id that begins so; the message names some of them."""

    code = "ambiguous_id"


class AppError(DetentError):
    """The program that jobs are to be run from cannot be used; `fields["reference"]` names it."""

    code = "app_error"


class AppAmbiguous(AppError):
    """There are several apps in the module, and nothing says which is meant."""

    code = "app_ambiguous"


class AppBroken(AppError):
    """The module raised an error while it was imported; the message ends with its traceback."""

    code = "app_broken"


class AppMissing(AppError):
    """The module has no app, or what has that name is none."""

    code = "app_missing"


class AppNotFound(AppError):
    """There is no such file and no such module."""

    code = "app_not_found"


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


class NotPortable(DetentError, TypeError):
    """What belongs to the app of a process cannot be sent elsewhere; what names it can."""

    code = "not_portable"


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


class NumberTooLarge(LimitError):
    """A number in JSON is larger than a double can be, so that it would be read as infinite."""

    code = "number_too_large"


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


class UnknownType(DetentError):
    """No program of that type has worked on this store, so nobody knows what is secret about it."""

    code = "unknown_type"


class UnknownSchedule(DetentError):
    """There is no schedule of that name."""

    code = "unknown_schedule"
