"""Every error that a user may see: what went wrong, what to do, and whether a retry can help."""

from __future__ import annotations

from typing import Any, ClassVar


class LakeError(Exception):
    """Base of all our errors. Only the class decides whether a call is retried.

    The message reads "cannot <do> <what>: <reason>". The hint says what to do. `where` points at the setting, the
    file and position, or the token concerned.
    """

    code: ClassVar[str] = "error"
    #: True when the same call may succeed later without any change.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        """The whole error in one line, for logs and terminals."""
        line = f"{self.where}: {self.message}" if self.where else self.message
        return f"{line}; {self.hint}" if self.hint else line

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Spark tasks), and the default would lose hint and where.
        return _rebuild, (type(self), self.message, self.hint, self.where)


def _rebuild(kind: type[LakeError], message: str, hint: str | None, where: str | None) -> LakeError:
    return kind(message, hint=hint, where=where)


class BadInput(LakeError):
    """The input cannot be used: wrong type, unparsable or not allowed. The caller must fix it."""

    code = "bad_input"


class LimitHit(LakeError):
    """A configured limit stopped the work. The message names the limit."""

    code = "limit_hit"


class Missing(LakeError):
    """The requested thing does not exist."""

    code = "missing"


class Denied(LakeError):
    """The credential is absent, unknown, revoked, or lacks the required permission."""

    code = "denied"


class Unavailable(LakeError):
    """A dependency does not answer now, but may later."""

    code = "unavailable"
    retryable = True


class Conflict(LakeError):
    """Another writer was first (a lost compare-and-swap, a create-only put on an existing key)."""

    code = "conflict"


class Bug(LakeError):
    """One of our own invariants does not hold. Never the user's fault."""

    code = "bug"
