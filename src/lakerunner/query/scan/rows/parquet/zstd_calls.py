"""Decompresses zstd within kernels, so that a column of many pages is read in one call, without the interpreter's lock.

Kernels get the addresses of the library's functions as arguments: a kernel that has them as constants could not be kept
on the disk. The library is the system's if that is new enough: it decodes lines of logs in an eighth less time.
Otherwise it is the one in the package zstandard, whose CFFI module knows where its functions are.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

Numbers = npt.NDArray[np.int64]
#: The addresses of functions by their names.
Library = dict[str, int]

#: What `zstd_of_thread` holds, by place.
_CONTEXT, _DECOMPRESS, _STREAM, _RESET = range(4)
_FUNCTIONS = (
    "ZSTD_decompressDCtx",
    "ZSTD_decompressStream_simpleArgs",
    "ZSTD_DCtx_reset",
    "ZSTD_createDCtx",
    "ZSTD_freeDCtx",
)
_SYSTEM_LIBRARY = "libzstd.so.1"
#: 1.5.2. Older ones may be slower than the package's; 1.5.4 was measured.
_OLDEST_SYSTEM_VERSION = 1_05_02
#: A call of zstd's that forgets what was decompressed in part: ZSTD_reset_session_only.
_SESSION_ONLY = 1
_WORD = ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_of_thread = threading.local()
#: In place of what `zstd_of_thread` returns, for bytes that are not compressed.
NO_ZSTD: Numbers = np.zeros(4, np.int64)


class ZstdContext:
    """A context of a library. `numbers` is what kernels need, as long as this lives."""

    def __init__(self, library: Library) -> None:
        create = ctypes.CFUNCTYPE(ctypes.c_void_p)(library["ZSTD_createDCtx"])
        self._free = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(library["ZSTD_freeDCtx"])
        self._address: int | None = create()
        if self._address is None:
            raise MemoryError("no memory for a context of zstd")
        self.numbers: Numbers = np.array([self._address, *(library[name] for name in _FUNCTIONS[:3])], np.int64)

    def __del__(self) -> None:
        self._free(self._address)


def libraries() -> Iterator[Library]:
    """The libraries that this machine has, the best one first."""
    try:
        system = ctypes.CDLL(_SYSTEM_LIBRARY)
        if system.ZSTD_versionNumber() >= _OLDEST_SYSTEM_VERSION:
            yield {name: ctypes.cast(getattr(system, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS}
    except (OSError, AttributeError):
        # It is absent, or lacks a function.
        pass
    # Its types are not known.
    backend: Any = importlib.import_module("zstandard.backend_cffi")
    ffi, lib = backend.ffi, backend.lib
    yield {name: int(ffi.cast("uintptr_t", ffi.addressof(lib, name))) for name in _FUNCTIONS}


@functools.cache
def _library() -> Library:
    return next(libraries())


def zstd_of_thread() -> Numbers:
    """What kernels need to decompress on this thread: its context, and the addresses of functions."""
    found: ZstdContext | None = getattr(_of_thread, "context", None)
    if found is None:
        # Kept as long as the thread.
        found = _of_thread.context = ZstdContext(_library())
    return found.numbers


@njit(cache=True, nogil=True)
def decompress(zstd, packed, at, size, into, most):  # type: ignore[no-untyped-def]
    """Decompress `size` bytes from `at` on to at most so many. Returns their number; negative: they are damaged."""
    return _decompress(zstd[_DECOMPRESS], zstd[_CONTEXT], into, most, packed, at, size)


@njit(cache=True, nogil=True)
def begin_stream(zstd, progress):  # type: ignore[no-untyped-def]
    """Before bytes are decompressed in parts. `progress` counts the bytes made and the bytes taken."""
    _reset(zstd[_RESET], zstd[_CONTEXT], _SESSION_ONLY)
    progress[:] = 0


@njit(cache=True, nogil=True)
def decompress_until(zstd, packed, at, size, into, until, progress):  # type: ignore[no-untyped-def]
    """Decompress on, until there are so many bytes. False: they are damaged, or there are fewer."""
    while progress[0] < until:
        made, taken = progress[0], progress[1]
        left = _decompress_stream(zstd[_STREAM], zstd[_CONTEXT], into, until, packed, at, size, progress)
        if left < 0 or (progress[0] == made and progress[1] == taken):
            return False
    return True


def _kernel_call(generator: Any) -> Any:
    """What kernels call has other parameters than what generates it, so that types cannot be checked."""
    return intrinsic(generator)


@_kernel_call
def _decompress(
    typing_context: Any, function: Any, context: Any, into: Any, most: Any, packed: Any, at: Any, size: Any
) -> Any:
    number = types.int64
    signature = number(number, number, into, number, packed, number, number)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function, zstd, into, most, packed, at, size = arguments
        target = _start(context, builder, signature.args[2], into)
        source = builder.gep(_start(context, builder, signature.args[4], packed), [at])
        kind = ir.FunctionType(_WORD, [_WORD, _POINTER, _WORD, _POINTER, _WORD])
        return _called(builder, kind, function, [zstd, target, most, source, size])

    return signature, generate


@_kernel_call
def _decompress_stream(
    typing_context: Any,
    function: Any,
    context: Any,
    into: Any,
    until: Any,
    packed: Any,
    at: Any,
    size: Any,
    progress: Any,
) -> Any:
    number = types.int64
    signature = number(number, number, into, number, packed, number, number, progress)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function, zstd, into, until, packed, at, size, progress = arguments
        target = _start(context, builder, signature.args[2], into)
        source = builder.gep(_start(context, builder, signature.args[4], packed), [at])
        made = context.make_array(signature.args[7])(context, builder, progress).data
        taken = builder.gep(made, [ir.Constant(_WORD, 1)])
        kind = ir.FunctionType(_WORD, [_WORD, _POINTER, _WORD, _WORD.as_pointer(), _POINTER, _WORD, _WORD.as_pointer()])
        return _called(builder, kind, function, [zstd, target, until, made, source, size, taken])

    return signature, generate


@_kernel_call
def _reset(typing_context: Any, function: Any, context: Any, what: Any) -> Any:
    signature = types.int64(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function, zstd, what = arguments
        kind = ir.FunctionType(_WORD, [_WORD, ir.IntType(32)])
        return _called(builder, kind, function, [zstd, builder.trunc(what, ir.IntType(32))])

    return signature, generate


def _start(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where the bytes of an array begin."""
    return builder.bitcast(context.make_array(kind)(context, builder, array).data, _POINTER)


def _called(builder: Any, kind: Any, function: Any, arguments: Any) -> Any:
    return builder.call(builder.inttoptr(function, kind.as_pointer()), arguments)
