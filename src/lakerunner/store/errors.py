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
_STATUS_LINE = re.compile(r"status code: (\d{3}[ A-Za-z]*)")
_XML_CODE = re.compile(r"<Code>([^<]+)</Code>")
_XML_MESSAGE = re.compile(r"<Message>([^<\n]+)")
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
#: Metadata services that give machines their credentials; asked last, when no other credential was found.
_METADATA_HOSTS = ("169.254.169.254", "metadata.google.internal", "169.254.170.2")
#: obstore's own text, without a status, for a 301 of S3.
_REDIRECT = "Received redirect without LOCATION"
_MAX_REASON = 300
#: The last alternative is the answer of Azure's emulator for an empty object.
_RANGE_AFTER_END = re.compile(r'status code: 416|Wanted range starting at|Requested range was invalid|"bytes 0--1/0"')

_CREDENTIALS_HINT = "check the credentials of this process and its permissions on the bucket"
_ARCHIVED_HINT = "restore the object, then run `lakerunner ingest quarantine retry`"
_REGION_HINT = "check store.region and store.endpoint"
_REFUSAL_HINTS = {
    "RequestTimeTooSkewed": "correct the clock of this machine",
    "PermanentRedirect": _REGION_HINT,
    "AuthorizationHeaderMalformed": _REGION_HINT,
}
#: S3's and Azure's answers to reading an object that was moved to an archive.
_ARCHIVED = frozenset({"InvalidObjectState", "BlobArchived", "BlobBeingRehydrated"})
#: 4xx answers that a different request would not get: too large, or a key that is too long.
_OWN_FAULTS = frozenset({413, 414})
_OWN_CODES = frozenset({"KeyTooLongError", "EntityTooLarge", "InvalidURI", "InvalidResourceName"})
_NETWORK_HINT = "check store.url, store.endpoint and the network"


class StoreUnavailable(Unavailable):
    """The store serves nobody now: it refuses every request, or is paused after failures. No object is to blame.

    `where` is the address of the bucket.
    """


class Refused(Denied):
    """The store answered with a refusal. `ObjectStore` finds out whether it refuses one object or everybody."""


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
    if code in _ARCHIVED:
        return BadInput(f"cannot {act}: it is in an archived storage class", hint=_ARCHIVED_HINT)
    if isinstance(error, FileNotFoundError):
        return Missing(f"cannot {act}: there is no such object")
    if isinstance(error, obstore.AlreadyExistsError):
        return Conflict(f"cannot {act}: it exists already")
    if isinstance(error, (obstore.PreconditionError, obstore.NotModifiedError)):
        return Conflict(f"cannot {act}: it was changed meanwhile")
    if isinstance(error, (obstore.PermissionDeniedError, obstore.UnauthenticatedError)):
        return Refused(f"cannot {act}: {_reason(text)}", hint=_REFUSAL_HINTS.get(code, _CREDENTIALS_HINT))
    if any(host in text for host in _METADATA_HOSTS):
        return Refused(f"cannot {act}: no credentials were found", hint=_CREDENTIALS_HINT)
    if _REDIRECT in text:
        return Refused(f"cannot {act}: the bucket is in another region", hint=_REGION_HINT)
    if isinstance(error, obstore.InvalidPathError):
        return BadInput(f"cannot {act}: {_reason(text)}", hint="rename or delete that object")
    if isinstance(error, (ValueError, obstore.UnknownConfigurationKeyError, obstore.NotSupportedError)):
        return BadInput(f"cannot {act}: {_reason(text)}")
    if _RANGE_AFTER_END.search(text):
        return BadInput(f"cannot {act}: the range begins after the end of the object")
    return _of_status(int(status.group(1)) if status else 0, code, act, text)


def _of_status(status: int, code: str, act: str, text: str) -> LakeError:
    if status in _OWN_FAULTS or code in _OWN_CODES:
        return BadInput(f"cannot {act}: {_reason(text)}")
    # 408 and 429 ask the client to retry later; 409 means two concurrent writers, which a retry settles.
    if 300 <= status < 500 and status not in (408, 409, 429):
        hint = _REGION_HINT if status < 400 else _CREDENTIALS_HINT
        return Refused(f"cannot {act}: {_reason(text)}", hint=_REFUSAL_HINTS.get(code, hint))
    return Unavailable(f"cannot {act}: {_reason(text)}", hint=_NETWORK_HINT)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def of_os(error: OSError, act: str) -> LakeError:
    number = error.errno
    reason = os.strerror(number).lower() if number else str(error)
    if number in _FULL:
        return DiskFull(f"cannot {act}: the disk is full ({reason})", hint="free space on the bucket's disk")
    if number in _FORBIDDEN:
        return Refused(f"cannot {act}: {reason}", hint="check owner and permissions of the bucket's folder")
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
    if status := _STATUS_LINE.search(text):
        return f"the store answered {status.group(1).strip()}"
    line = " ".join(text.split("\n\nDebug source:")[0].split())
    if "Debug source" not in text:
        return line[:_MAX_REASON]
    causes = [cause for cause in _CAUSES if cause.lower() in text.lower()]
    return f"{line[:_MAX_REASON]}: {causes[0]}" if causes else line[:_MAX_REASON]


#: Causes that occur in the debug structure but not in the first line.
_CAUSES = ("connection refused", "timed out", "TimedOut", "dns error", "connection reset", "certificate")
