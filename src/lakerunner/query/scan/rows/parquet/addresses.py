"""Memory by its address, within kernels: a list of arrays would have to be taken apart at every call.

Whoever gives an address keeps what is there.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import njit, types
from numba.extending import intrinsic

# Its types are not known.
_numba: Any = numba
_carray, _Pointer = _numba.carray, _numba.types.CPointer


def _kernel_call(generator: Any) -> Any:
    """What kernels call has other parameters than what generates it, so that types cannot be checked."""
    return intrinsic(generator)


@_kernel_call
def _pointer(typing_context: Any, address: Any) -> Any:
    signature = _Pointer(types.uint8)(types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


@njit(cache=True, nogil=True, inline="always")
def bytes_at(address, size):  # type: ignore[no-untyped-def]
    return _carray(_pointer(address), (size,))
