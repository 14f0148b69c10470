"""Errors that end the gate: each knows the exit status that docs/gate.md promises."""


class GateError(Exception):
    """One line that names the flag or file, what is wrong and what is allowed."""

    status = 4


class UsageError(GateError):
    status = 2


class CouldNotRun(GateError):
    """A build, a worker or a tool failed: no verdict either way."""

    status = 4
