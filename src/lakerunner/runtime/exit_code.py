"""The exit codes of every process of ours."""

from __future__ import annotations

from lakerunner.model.errors import BadInput, LakeError

EXIT_OK, EXIT_FAILED, EXIT_MISUSE = 0, 1, 2
#: The process ended on purpose, to be restarted at once. The value of EX_TEMPFAIL in sysexits.h, unused otherwise.
EXIT_RECYCLED = 75


def exit_code_of(error: LakeError) -> int:
    """Return 2 when the user must change the input or settings, 1 for any other failure."""
    return EXIT_MISUSE if isinstance(error, BadInput) else EXIT_FAILED
