"""Errors of obstore and of the file system: their class, one line of text, and a hint."""

from __future__ import annotations

import errno
import os
import pickle

import pytest
from obstore import exceptions as obstore

from lakerunner.model.errors import BadInput, Conflict, LakeError, Missing, Unavailable
from lakerunner.store.errors import DiskFull, Refused, of_obstore, of_os

_XML = "<Error><Code>{}</Code><Message>{}\nRequestId:1</Message></Error>\n\nDebug source:\nGeneric {{ ... }}"


def _answered(status: str, code: str = "Oops", message: str = "It said no.") -> str:
    return f"Generic S3 error: Server returned non-2xx status code: {status}: {_XML.format(code, message)}"


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (FileNotFoundError(_answered("404 Not Found", "NoSuchKey")), Missing, "no such object"),
        (FileNotFoundError(_answered("404 Not Found", "NoSuchBucket")), Unavailable, "the bucket does not exist"),
        (obstore.GenericError(_answered("404 Not Found", "ContainerNotFound")), Unavailable, "bucket does not exist"),
        (obstore.AlreadyExistsError(_answered("412 Precondition Failed")), Conflict, "exists already"),
        (obstore.PreconditionError(_answered("412 Precondition Failed")), Conflict, "it was changed meanwhile"),
        (obstore.PermissionDeniedError(_answered("403 Forbidden")), Refused, "It said no. (Oops); check the cred"),
        (obstore.UnauthenticatedError(_answered("401 Unauthorized")), Refused, "credentials"),
        (obstore.GenericError("Error performing PUT http://169.254.169.254/latest/api"), Refused, "no credentials"),
        (obstore.GenericError(_answered("500 Internal")), Unavailable, "It said no. (Oops)"),
        (obstore.GenericError(_answered("503 Slow Down", "SlowDown")), Unavailable, "SlowDown"),
        (obstore.GenericError(_answered("429 Too Many")), Unavailable, "It said no."),
        (obstore.GenericError(_answered("408 Timeout")), Unavailable, "It said no."),
        (obstore.GenericError(_answered("409 Conflict")), Unavailable, "It said no."),
        (obstore.GenericError(_answered("400 Bad", "InvalidArgument")), Refused, "InvalidArgument"),
        (obstore.GenericError(_answered("400 Bad", "ExpiredToken")), Refused, "ExpiredToken"),
        (obstore.GenericError(_answered("400 Bad", "AuthorizationHeaderMalformed")), Refused, "store.region"),
        (obstore.GenericError(_answered("301 Moved", "PermanentRedirect")), Refused, "store.region"),
        (obstore.PermissionDeniedError(_answered("403 No", "RequestTimeTooSkewed")), Refused, "the clock"),
        (obstore.PermissionDeniedError(_answered("403 No", "InvalidObjectState")), BadInput, "archived"),
        (obstore.GenericError(_answered("409 Conflict", "BlobArchived")), BadInput, "archived"),
        (obstore.GenericError(_answered("400 Bad", "KeyTooLongError")), BadInput, "KeyTooLong"),
        (obstore.GenericError(_answered("416 Range", "InvalidRange")), BadInput, "after the end"),
        (obstore.GenericError("error sending request\n\nDebug source:\nConnection refused"), Unavailable, "refused"),
        (obstore.GenericError("error\n\nDebug source:\nTimedOut"), Unavailable, "TimedOut"),
        (obstore.InvalidPathError('Path "a//b" contained empty path segment'), BadInput, "rename or delete"),
        (ValueError("Could not parse"), BadInput, "Could not parse"),
    ],
)
def test_obstore(error: Exception, kind: type[LakeError], text: str) -> None:
    found = of_obstore(error, "get 'k'")
    assert type(found) is kind
    assert text in str(found)
    assert str(found).startswith("cannot get 'k': ")
    assert "\n" not in str(found)
    assert "Debug" not in str(found)


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (errno.ENOSPC, DiskFull, "the disk is full (no space left on device); free space"),
        (errno.EDQUOT, DiskFull, "the disk is full"),
        (errno.EACCES, Refused, "permission denied; check owner and permissions"),
        (errno.EROFS, Refused, "read-only file system"),
        (errno.ENOENT, Missing, "no such object"),
        (errno.EEXIST, Conflict, "exists already"),
        (errno.ENOTDIR, Conflict, "cannot hold both"),
        (errno.ENAMETOOLONG, BadInput, "at most 255 bytes"),
        (errno.EIO, Unavailable, "input/output error"),
        (errno.EMFILE, Unavailable, "too many open files"),
    ],
)
def test_the_file_system(number: int, kind: type[LakeError], text: str) -> None:
    found = of_os(OSError(number, os.strerror(number), "/some/path"), "put 'k'")
    assert type(found) is kind
    assert text in str(found)
    assert pickle.loads(pickle.dumps(found)).hint == found.hint
