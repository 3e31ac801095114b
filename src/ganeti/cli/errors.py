"""Texts of errors and exit codes of commands."""

from ganeti.base.errors import (
    ErrorCode,
    ExecError,
    GanetiError,
    HooksAbort,
    InputError,
    JobCanceled,
    JobLost,
    JobQueueDrained,
    JobQueueFull,
    NotMaster,
    PrereqError,
)

EXIT_NOT_CLUSTER = 5
EXIT_NOT_MASTER = 11
EXIT_NODE_SETUP = 12
EXIT_CONFIRMATION = 13
EXIT_UNKNOWN_FIELD = 14


class NeedsConfirmation(GanetiError):
    """The command needs a confirmation."""

    exit_code = EXIT_CONFIRMATION


class NodeSetupError(GanetiError):
    """The setup of a host as a node failed."""

    exit_code = EXIT_NODE_SETUP


class JobSubmitted(GanetiError):
    """The job was submitted, and the command does not wait for its end (`--submit`)."""

    exit_code = 0

    def __init__(self, job_ids: list[int]) -> None:
        super().__init__(" ".join(str(job_id) for job_id in job_ids))
        self.job_ids = job_ids


class JobFailed(GanetiError):
    """A job did not succeed and has no error that could be raised again."""


_HEADS: dict[type[GanetiError], str] = {
    ExecError: "Failure: command execution error:",
    JobQueueDrained: "Failure: the job queue is drained and takes no new jobs:",
    JobQueueFull: "Failure: the job queue is full; archive old jobs (gnt-job archive) first:",
    JobLost: "Failure: no such job:",
    JobCanceled: "Failure: the job was canceled:",
    NotMaster: "Failure: not the master node:",
}


def usage_error(message: str, field: str = "") -> InputError:
    """The command line is invalid."""
    return InputError(message, field)


def format_error(err: GanetiError) -> str:
    """Return the text of an error, for people and for scripts that match its type."""
    if isinstance(err, JobSubmitted):
        return ""
    if isinstance(err, PrereqError):
        return (
            "Failure: prerequisites not met for this operation:\n"
            f"error type: {err.code.value}, error details:\n{err.message}"
        )
    if isinstance(err, HooksAbort):
        lines = [_refusal(*refusal) for refusal in err.refusals]
        return "\n".join(["Failure: hooks execution failed:", *lines])
    for kind, head in _HEADS.items():
        if isinstance(err, kind):
            return f"{head}\n{err.message}"
    return f"Failure: {err.message}"


def _refusal(node: str, script: str, output: str) -> str:
    said = f", output: {output}" if output else " (no output)"
    return f"  node: {node}, script: {script}{said}"


def exit_code_of(err: GanetiError) -> int:
    """Return the exit code of a command."""
    return err.exit_code


__all__ = [
    "EXIT_CONFIRMATION",
    "EXIT_NODE_SETUP",
    "EXIT_NOT_CLUSTER",
    "EXIT_NOT_MASTER",
    "EXIT_UNKNOWN_FIELD",
    "ErrorCode",
    "JobFailed",
    "JobSubmitted",
    "NeedsConfirmation",
    "NodeSetupError",
    "exit_code_of",
    "format_error",
    "usage_error",
]
