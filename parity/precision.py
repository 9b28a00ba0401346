"""The dtypes under test: of which array, with which unit roundoff."""

from typing import get_args

import ml_dtypes
import numpy as np

from implementations.contract import Dtype

DTYPES: tuple[Dtype, ...] = get_args(Dtype)

UNIT_ROUNDOFF: dict[Dtype, float] = {"f64": 2.0**-53, "f32": 2.0**-24, "bf16": 2.0**-8}
SMALLEST_NORMAL: dict[Dtype, float] = {"f64": 2.0**-1022, "f32": 2.0**-126, "bf16": 2.0**-126}
NUMPY: dict[Dtype, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}

# Gates and states stay in f32 where tokens are bf16: rounding them is one of the reported mistakes.
_GATES_AND_STATES = ("g", "beta", "initial_state", "dfinal_state", "final_state", "dg", "dbeta", "dh0")


def dtype_of(array: str, dtype: Dtype) -> Dtype:
    """The dtype of the input, cotangent or quantity `array` in a run that is called `dtype`."""
    return "f32" if dtype == "bf16" and array in _GATES_AND_STATES else dtype


def round_to(x: np.ndarray, dtype: Dtype) -> np.ndarray:
    """`x` in `dtype`, rounded once, to nearest even."""
    if dtype == "bf16":  # ml_dtypes would round to f32 first, and then a second time
        exponent = np.maximum(np.frexp(x)[1], -125)
        x = np.ldexp(np.rint(np.ldexp(x, 8 - exponent)), exponent - 8)
    return x.astype(NUMPY[dtype])
