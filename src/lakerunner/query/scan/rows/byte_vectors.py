"""Vector instructions for kernels: which of 64 neighbouring bytes are equal to another, as the bits of one number.

The compiler does not make them of loops: it can tell whether a byte fits, but not which one. LLVM has them for every
processor.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Bytes that are compared at once.
BLOCK = 64
_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
_BYTES = ir.VectorType(_BYTE, BLOCK)


def _kernel_call(generator: Any) -> Any:
    """What kernels call has other parameters than what generates it, so that types cannot be checked."""
    return intrinsic(generator)


@_kernel_call
def equal_places(typing_context: Any, data: Any, at: Any, byte: Any, fold: Any) -> Any:
    """Compare the `BLOCK` bytes from `at` on, all of which must be there. Bit i is set if byte i | fold is `byte`."""
    signature = types.uint64(data, types.int64, types.uint8, types.uint8)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array, place, wanted, folded = arguments
        start = builder.gep(context.make_array(kind)(context, builder, array).data, [place], inbounds=True)
        found = builder.load(builder.bitcast(start, _BYTES.as_pointer()), align=1, typ=_BYTES)
        fits = builder.icmp_unsigned(
            "==", builder.or_(found, _everywhere(builder, folded)), _everywhere(builder, wanted)
        )
        return builder.bitcast(fits, _WORD)

    return signature, generate


@_kernel_call
def lowest_bit(typing_context: Any, bits: Any) -> Any:
    """The place of the lowest bit of a number that is not 0."""
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    return signature, generate


def _everywhere(builder: Any, byte: Any) -> Any:
    """A vector of the same byte."""
    first = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
    return builder.shuffle_vector(first, ir.Constant(_BYTES, ir.Undefined), zeros)
