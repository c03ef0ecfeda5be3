"""Translate errors of obstore and of the file system to LakeErrors, with the right class for retries and a hint."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions as obstore

from lakerunner.model.errors import BadInput, Conflict, Denied, LakeError, Missing, Unavailable

_STATUS = re.compile(r"status code: (\d{3})")
_XML_CODE = re.compile(r"<Code>([^<]+)</Code>")
_XML_MESSAGE = re.compile(r"<Message>([^<\n]+)")
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
#: Metadata services that give machines their credentials; asked last, when no other credential was found.
_METADATA_HOSTS = ("169.254.169.254", "metadata.google.internal", "169.254.170.2")
_MAX_REASON = 300
#: The last alternative is the answer of Azure's emulator for an empty object.
_RANGE_AFTER_END = re.compile(r'status code: 416|Wanted range starting at|Requested range was invalid|"bytes 0--1/0"')

_CREDENTIALS_HINT = "check the credentials of this process and its permissions on the bucket"
_NETWORK_HINT = "check store.url, store.endpoint and the network"


class DiskFull(Unavailable):
    """No space is left for a put. Reads still work, so this error does not open the circuit."""


@contextmanager
def remote_errors(act: str) -> Iterator[None]:
    """Raise obstore's errors in the block as LakeErrors. `act` completes "cannot ..."."""
    try:
        yield
    except (obstore.BaseError, OSError, ValueError) as error:
        raise of_obstore(error, act) from None


@contextmanager
def folder_errors(act: str) -> Iterator[None]:
    """Raise the file system's errors in the block as LakeErrors."""
    try:
        yield
    except OSError as error:
        raise of_os(error, act) from None


def of_obstore(error: Exception, act: str) -> LakeError:
    """Translate an error of obstore, which reports status and cause only in its text."""
    text = str(error)
    found = _XML_CODE.search(text)
    code = found.group(1) if found else ""
    status = _STATUS.search(text)
    if code in _NO_BUCKET:
        # Not Missing: with a wrong setting, a worker would believe that its inputs were deleted and drop them.
        return Unavailable(f"cannot {act}: the bucket does not exist", hint="create the bucket, or correct store.url")
    if isinstance(error, FileNotFoundError):
        return Missing(f"cannot {act}: there is no such object")
    if isinstance(error, obstore.AlreadyExistsError):
        return Conflict(f"cannot {act}: it exists already")
    if isinstance(error, (obstore.PreconditionError, obstore.NotModifiedError)):
        return Conflict(f"cannot {act}: it was changed meanwhile")
    if isinstance(error, (obstore.PermissionDeniedError, obstore.UnauthenticatedError)):
        return Denied(f"cannot {act}: {_reason(text)}", hint=_CREDENTIALS_HINT)
    if any(host in text for host in _METADATA_HOSTS):
        return Denied(f"cannot {act}: no credentials were found", hint=_CREDENTIALS_HINT)
    if isinstance(error, obstore.InvalidPathError):
        return BadInput(f"cannot {act}: {_reason(text)}", hint="rename or delete that object")
    if isinstance(error, (ValueError, obstore.UnknownConfigurationKeyError, obstore.NotSupportedError)):
        return BadInput(f"cannot {act}: {_reason(text)}")
    if _RANGE_AFTER_END.search(text):
        return BadInput(f"cannot {act}: the range begins after the end of the object")
    return _of_status(int(status.group(1)) if status else 0, act, text)


def _of_status(status: int, act: str, text: str) -> LakeError:
    if status in (401, 403):
        return Denied(f"cannot {act}: {_reason(text)}", hint=_CREDENTIALS_HINT)
    if 300 <= status < 400:
        return BadInput(f"cannot {act}: {_reason(text)}", hint="check store.region and store.endpoint")
    # 408 and 429 ask the client to retry later; 409 means two concurrent writers, which a retry settles.
    if 400 <= status < 500 and status not in (408, 409, 429):
        return BadInput(f"cannot {act}: {_reason(text)}")
    return Unavailable(f"cannot {act}: {_reason(text)}", hint=_NETWORK_HINT)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def of_os(error: OSError, act: str) -> LakeError:
    number = error.errno
    reason = os.strerror(number).lower() if number else str(error)
    if number in _FULL:
        return DiskFull(f"cannot {act}: the disk is full ({reason})", hint="free space on the bucket's disk")
    if number in _FORBIDDEN:
        return Denied(f"cannot {act}: {reason}", hint="check owner and permissions of the bucket's folder")
    if number == errno.ENOENT:
        return Missing(f"cannot {act}: there is no such object")
    if number == errno.EEXIST:
        return Conflict(f"cannot {act}: it exists already")
    if number in (errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY):
        return Conflict(f"cannot {act}: a folder cannot hold both an object x and objects under x/")
    if number in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
        return BadInput(f"cannot {act}: {reason}", hint="a folder takes at most 255 bytes for one part of a key")
    return Unavailable(f"cannot {act}: {reason}", hint="check the bucket's disk")


def _reason(text: str) -> str:
    """Shorten the text to one line: obstore appends its debug structure and the XML of the answer."""
    message, code = _XML_MESSAGE.search(text), _XML_CODE.search(text)
    if message and code:
        return f"{message.group(1).strip()} ({code.group(1)})"
    line = " ".join(text.split("\n\nDebug source:")[0].split())
    if "Debug source" not in text:
        return line[:_MAX_REASON]
    causes = [cause for cause in _CAUSES if cause.lower() in text.lower()]
    return f"{line[:_MAX_REASON]}: {causes[0]}" if causes else line[:_MAX_REASON]


#: Causes that occur in the debug structure but not in the first line.
_CAUSES = ("connection refused", "timed out", "TimedOut", "dns error", "connection reset", "certificate")
