"""Vector instructions for kernels: which of several neighbouring bytes are equal to others, as the bits of one number.

The compiler does not make them of loops: it can tell whether a byte fits, but not which one. LLVM has them for every
processor.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Bytes that are compared at once: by `equal_places` and by `places_of_any`.
BLOCK, SHORT_BLOCK = 64, 16
_BYTE, _WORD = ir.IntType(8), ir.IntType(64)


def _kernel_call(generator: Any) -> Any:
    """What kernels call has other parameters than what generates it, so that types cannot be checked."""
    return intrinsic(generator)


@_kernel_call
def equal_places(typing_context: Any, data: Any, at: Any, byte: Any, fold: Any) -> Any:
    """Compare the `BLOCK` bytes from `at` on, all of which must be there. Bit i is set if byte i | fold is `byte`."""
    signature = types.uint64(data, types.int64, types.uint8, types.uint8)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place, wanted, folded = arguments
        found = _loaded(context, builder, signature.args[0], array, place, BLOCK)
        found = builder.or_(found, _everywhere(builder, folded, BLOCK))
        return builder.bitcast(builder.icmp_unsigned("==", found, _everywhere(builder, wanted, BLOCK)), _WORD)

    return signature, generate


@_kernel_call
def places_of_any(typing_context: Any, data: Any, at: Any, first: Any, second: Any, third: Any) -> Any:
    """Compare the `SHORT_BLOCK` bytes from `at` on, all of which must be there, with three others."""
    signature = types.uint64(data, types.int64, types.uint8, types.uint8, types.uint8)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place, *wanted = arguments
        found = _loaded(context, builder, signature.args[0], array, place, SHORT_BLOCK)
        fits = [builder.icmp_unsigned("==", found, _everywhere(builder, byte, SHORT_BLOCK)) for byte in wanted]
        any_fits = builder.or_(builder.or_(fits[0], fits[1]), fits[2])
        return builder.zext(builder.bitcast(any_fits, ir.IntType(SHORT_BLOCK)), _WORD)

    return signature, generate


@_kernel_call
def lowest_bit(typing_context: Any, bits: Any) -> Any:
    """The place of the lowest bit of a number that is not 0."""
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    return signature, generate


def _loaded(context: Any, builder: Any, kind: Any, array: Any, place: Any, count: int) -> Any:
    """So many bytes of an array as a vector."""
    vector = ir.VectorType(_BYTE, count)
    start = builder.gep(context.make_array(kind)(context, builder, array).data, [place], inbounds=True)
    return builder.load(builder.bitcast(start, vector.as_pointer()), align=1, typ=vector)


def _everywhere(builder: Any, byte: Any, count: int) -> Any:
    """A vector of the same byte."""
    undefined = ir.Constant(ir.VectorType(_BYTE, count), ir.Undefined)
    first = builder.insert_element(undefined, byte, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count)
    return builder.shuffle_vector(first, undefined, zeros)
