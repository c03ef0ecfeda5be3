"""Every error a user may see: what went wrong, what to do, and whether trying again can help."""

from __future__ import annotations

from typing import Any, ClassVar


class LakeError(Exception):
    """Base of all errors of ours. The class decides retry; nothing else does.

    The message reads "cannot <do> <what>: <reason>"; the hint says what to do about it; `where` points at the
    thing concerned (a setting, a file and position, a token).
    """

    code: ClassVar[str] = "error"
    #: True when the same call may succeed later without anybody changing anything.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        """One line, whole: what a log or a terminal shows."""
        line = f"{self.where}: {self.message}" if self.where else self.message
        return f"{line}; {self.hint}" if self.hint else line

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Spark tasks), and the default would lose hint and where.
        return _rebuild, (type(self), self.message, self.hint, self.where)


def _rebuild(kind: type[LakeError], message: str, hint: str | None, where: str | None) -> LakeError:
    return kind(message, hint=hint, where=where)


class BadInput(LakeError):
    """What was given cannot be used: wrong type, unparsable, not allowed. Its giver must change it."""

    code = "bad_input"


class LimitHit(LakeError):
    """A configured limit stopped the work. The message names the limit."""

    code = "limit_hit"


class Missing(LakeError):
    """The thing asked for does not exist."""

    code = "missing"


class Denied(LakeError):
    """The credential is absent, unknown, revoked, or does not hold the right that is needed."""

    code = "denied"


class Unavailable(LakeError):
    """A dependency does not answer now: it may later."""

    code = "unavailable"
    retryable = True


class Conflict(LakeError):
    """Somebody else got there first (a lost compare-and-swap, a create-only put on an existing key)."""

    code = "conflict"


class Bug(LakeError):
    """An invariant of ours does not hold. Never the user's fault."""

    code = "bug"
