"""Frames on a socket between processes of one machine: a ticket to the worker; batches and a note, or an error, back.

gRPC takes a millisecond for a small request, over both processes and some ten threads of its own. A socket takes a
tenth of it. The meaning of tickets, batches and notes is that of Flight.
"""

from __future__ import annotations

import enum
import socket
import struct
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.ipc

from lakerunner.model.errors import BadInput, Bug, Denied, LakeError, LimitHit, Unavailable
from lakerunner.query.fanout.errors import Draining, Unread

_HEAD = struct.Struct("<BQ")
#: Put together once: these are members of an enumeration, which takes several calls.
_LOOK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
#: A ticket names its segments, at a few hundred bytes each.
MAX_TICKET_BYTES = 256 << 20
#: Answers up to this size are sent at once, with their note.
_JOINED_BYTES = 1 << 20
#: A longer path does not fit the address of a socket.
_MAX_PATH_BYTES = 100
#: Given, because finding the defaults looks at the environment each time.
_WRITE, _READ = pa.ipc.IpcWriteOptions(use_threads=False), pa.ipc.IpcReadOptions(use_threads=False)
_ERRORS = {kind.code: kind for kind in (BadInput, Bug, Denied, Draining, LimitHit, Unavailable, Unread)}


class Frame(enum.IntEnum):
    TICKET = 1
    #: A batch as an Arrow IPC stream.
    BATCH = 2
    #: A sign of life while there is no batch.
    ALIVE = 3
    #: The end of an answer.
    NOTE = 4
    #: The end of a request that failed: code and text.
    ERROR = 5


#: Calling the class takes longer.
_KINDS = {kind.value: kind for kind in Frame}


def socket_path(data_dir: Path, port: int) -> Path | None:
    """Where the worker that serves Flight on this port has its socket; None if the path is too long for one."""
    path = data_dir / f"query-worker-{port}.sock"
    return path if len(str(path).encode()) <= _MAX_PATH_BYTES else None


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end is gone. Takes a microsecond."""
    try:
        return not connection.recv(1, _LOOK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def frame(kind: Frame, body: bytes) -> bytes:
    return _HEAD.pack(kind, len(body)) + body


class FrameWriter:
    """Sends the frames of one answer. Small ones wait for the note, so that the answer is one piece."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._waiting: list[bytes | pa.Buffer] = []
        self._waiting_bytes = 0

    def batch(self, batch: pa.RecordBatch) -> None:
        body = _stream_of(batch)
        self._waiting += (_HEAD.pack(Frame.BATCH, body.size), body)
        self._waiting_bytes += body.size

    def note(self, note: bytes) -> None:
        self._waiting.append(frame(Frame.NOTE, note))
        self.flush()

    def alive(self) -> None:
        self._waiting.append(frame(Frame.ALIVE, b""))
        self.flush()

    def error(self, error: LakeError) -> None:
        document = {"code": error.code, "text": str(error)}
        self._waiting.append(frame(Frame.ERROR, orjson.dumps(document)))
        self.flush()

    def flush(self) -> None:
        waiting, size = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        if size <= _JOINED_BYTES:
            self._connection.sendall(b"".join(waiting))
            return
        for piece in waiting:
            self._connection.sendall(piece)


class FrameReader:
    """Reads frames; what came with one frame is kept for the next."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._held = b""

    def next(self, max_bytes: int = 1 << 62) -> tuple[Frame, pa.Buffer | bytes] | None:
        """The next frame; None at the end of the connection between two frames."""
        if len(self._held) < _HEAD.size and not self._more():
            return None
        number, size = _HEAD.unpack_from(self._held)
        kind = _KINDS.get(number)
        if size > max_bytes or kind is None:
            raise BadInput(f"cannot read a frame of kind {number} with {size:,} bytes")
        end = _HEAD.size + size
        if len(self._held) >= end:
            body, self._held = self._held[_HEAD.size : end], self._held[end:]
            return kind, body
        whole = bytearray(size)
        view = memoryview(whole)
        filled = len(self._held) - _HEAD.size
        view[:filled] = self._held[_HEAD.size :]
        self._held = b""
        while filled < size:
            got = self._connection.recv_into(view[filled:])
            if not got:
                raise ConnectionResetError("the connection ended within a frame")
            filled += got
        # Read-only, as what Flight receives: kernels are compiled separately for what can be written to.
        return kind, pa.py_buffer(view.toreadonly())

    def _more(self) -> bool:
        """Receive until there is a head. False: the connection has ended before one."""
        while len(self._held) < _HEAD.size:
            got = self._connection.recv(1 << 18)
            if not got:
                if self._held:
                    raise ConnectionResetError("the connection ended within a frame")
                return False
            self._held += got
        return True


def batch_of(body: pa.Buffer | bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(body, options=_READ).read_next_batch()


def error_of(body: pa.Buffer | bytes, address: str) -> LakeError:
    """The worker's error, as Flight would have carried it."""
    document = orjson.loads(memoryview(body))
    kind, text = _ERRORS.get(document["code"], Unavailable), str(document["text"])
    if kind is Denied:
        return Denied(f"cannot ask worker {address}: {text}")
    return kind(f"cannot read from worker {address}: {text}" if kind in (Draining, Unavailable) else text)


def _stream_of(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_WRITE) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
