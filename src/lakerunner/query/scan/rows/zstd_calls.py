"""Decompresses zstd within kernels, so that a column of many pages is read in one call, without the interpreter's lock.

The library is the one in the package zstandard, whose CFFI module knows where the functions are. Kernels get the
addresses as arguments: a kernel that has them as constants could not be kept on the disk.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

Numbers = npt.NDArray[np.int64]

#: What `zstd_of_thread` holds, by place.
_CONTEXT, _DECOMPRESS, _STREAM, _RESET = range(4)
#: A call of zstd's that forgets what was decompressed in part: ZSTD_reset_session_only.
_SESSION_ONLY = 1
_WORD = ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_of_thread = threading.local()
#: In place of what `zstd_of_thread` returns, for bytes that are not compressed.
NO_ZSTD: Numbers = np.zeros(4, np.int64)


def zstd_of_thread() -> Numbers:
    """What kernels need to decompress on this thread: its context, and the addresses of functions."""
    found: Numbers | None = getattr(_of_thread, "zstd", None)
    if found is None:
        # Its types are not known.
        backend: Any = importlib.import_module("zstandard.backend_cffi")
        ffi, lib = backend.ffi, backend.lib
        # Kept as long as the thread: the array has only its address.
        _of_thread.context = ffi.gc(lib.ZSTD_createDCtx(), lib.ZSTD_freeDCtx)
        functions = ("ZSTD_decompressDCtx", "ZSTD_decompressStream_simpleArgs", "ZSTD_DCtx_reset")
        pointers = (_of_thread.context, *(ffi.addressof(lib, name) for name in functions))
        found = np.array([int(ffi.cast("uintptr_t", pointer)) for pointer in pointers], np.int64)
        _of_thread.zstd = found
    return found


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
