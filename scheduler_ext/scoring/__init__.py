"""Lays pods out on nodes, in C: what is done for thousands of nodes, or for hundreds of classes of pods a second.

`scoring.h` says what there is. The structs it works on point into numpy arrays; `Lent` keeps those alive.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aliquot.scheduler_ext.scoring._scoring import ffi, lib

__all__ = ["Array", "Lent", "ffi", "lib", "pointer"]

Array = npt.NDArray[Any]

_TYPES: Final = {
    np.dtype(np.int16): "int16_t[]",
    np.dtype(np.int32): "int32_t[]",
    np.dtype(np.int64): "int64_t[]",
    np.dtype(np.uint8): "uint8_t[]",
    np.dtype(np.bool_): "uint8_t[]",
    np.dtype(np.float32): "float[]",
    np.dtype(np.float64): "double[]",
}


class Lent:
    """One C struct, or several in a row, with the arrays that their fields point into.

    Attributes:
        native: A pointer to the first.
    """

    def __init__(self, kind: str, count: int = 1) -> None:
        """Make structs of zeroes.

        Args:
            kind: The C type.
            count: How many.
        """
        self.native = ffi.new(f"{kind}[]", max(count, 1))
        self._kept: list[object] = []

    def lend(self, position: int = 0, /, **fields: object) -> None:
        """Set fields of one of the structs: numbers, arrays, other structs."""
        struct = self.native[position]
        for name, value in fields.items():
            setattr(struct, name, self._lent(value))

    def _lent(self, value: object) -> Any:
        if isinstance(value, np.ndarray):
            value = pointer(value)
            self._kept.append(value)
        elif isinstance(value, Lent):
            self._kept.append(value)
            value = value.native
        return value


def pointer(array: Array) -> Any:
    """Where an array's numbers lie, of the C type that they have; it lives as long as the answer does."""
    return ffi.from_buffer(_TYPES[array.dtype], array)
