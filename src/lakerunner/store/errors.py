"""Errors of obstore and of the file system as ours: the class says whether to retry, the line what to do."""

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
#: Where clouds hand credentials to their own machines; asked last, when no other credential was found.
_METADATA_HOSTS = ("169.254.169.254", "metadata.google.internal", "169.254.170.2")
_MAX_REASON = 300
#: The last is how Azure's emulator answers for an empty object.
_RANGE_AFTER_END = re.compile(r'status code: 416|Wanted range starting at|Requested range was invalid|"bytes 0--1/0"')

_CREDENTIALS_HINT = "check the credentials of this process and its rights on the bucket"
_NETWORK_HINT = "check store.url, store.endpoint and the network"


class DiskFull(Unavailable):
    """No space is left for a put. Reading still works, so it does not open the circuit."""


@contextmanager
def remote_errors(act: str) -> Iterator[None]:
    """Whatever obstore raises inside becomes ours. `act` completes "cannot ..."."""
    try:
        yield
    except (obstore.BaseError, OSError, ValueError) as error:
        raise of_obstore(error, act) from None


@contextmanager
def folder_errors(act: str) -> Iterator[None]:
    """Whatever the file system raises inside becomes ours."""
    try:
        yield
    except OSError as error:
        raise of_os(error, act) from None


def of_obstore(error: Exception, act: str) -> LakeError:
    """obstore tells status and cause in its text only, so the text is what is read here."""
    text = str(error)
    found = _XML_CODE.search(text)
    code = found.group(1) if found else ""
    status = _STATUS.search(text)
    if code in _NO_BUCKET:
        # Not Missing: a worker would take its inputs for deleted and drop them because of a wrong setting.
        return Unavailable(f"cannot {act}: the bucket does not exist", hint="create it, or correct store.url")
    if isinstance(error, FileNotFoundError):
        return Missing(f"cannot {act}: there is no such object")
    if isinstance(error, obstore.AlreadyExistsError):
        return Conflict(f"cannot {act}: it exists already")
    if isinstance(error, (obstore.PreconditionError, obstore.NotModifiedError)):
        return Conflict(f"cannot {act}: it was changed by somebody else meanwhile")
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
    # 408 and 429 ask for patience; 409 is two writers at once, which the next attempt settles.
    if 400 <= status < 500 and status not in (408, 409, 429):
        return BadInput(f"cannot {act}: {_reason(text)}")
    return Unavailable(f"cannot {act}: {_reason(text)}", hint=_NETWORK_HINT)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def of_os(error: OSError, act: str) -> LakeError:
    number = error.errno
    reason = os.strerror(number).lower() if number else str(error)
    if number in _FULL:
        return DiskFull(f"cannot {act}: the disk is full ({reason})", hint="free space on the disk of the bucket")
    if number in _FORBIDDEN:
        return Denied(f"cannot {act}: {reason}", hint="check owner and rights of the bucket's folder")
    if number == errno.ENOENT:
        return Missing(f"cannot {act}: there is no such object")
    if number == errno.EEXIST:
        return Conflict(f"cannot {act}: it exists already")
    if number in (errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY):
        return Conflict(f"cannot {act}: a folder cannot hold both an object x and objects under x/")
    if number in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
        return BadInput(f"cannot {act}: {reason}", hint="a folder takes at most 255 bytes for one part of a key")
    return Unavailable(f"cannot {act}: {reason}", hint="check the disk of the bucket")


def _reason(text: str) -> str:
    """One short line of what may be a page: obstore appends its whole structure and the answer's XML."""
    message, code = _XML_MESSAGE.search(text), _XML_CODE.search(text)
    if message and code:
        return f"{message.group(1).strip()} ({code.group(1)})"
    line = " ".join(text.split("\n\nDebug source:")[0].split())
    if "Debug source" not in text:
        return line[:_MAX_REASON]
    causes = [cause for cause in _CAUSES if cause.lower() in text.lower()]
    return f"{line[:_MAX_REASON]}: {causes[0]}" if causes else line[:_MAX_REASON]


#: What the structure after the line tells and the line does not.
_CAUSES = ("connection refused", "timed out", "TimedOut", "dns error", "connection reset", "certificate")
