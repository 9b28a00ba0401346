"""The whole layer around the gated delta rule, as Qwen3-Next and Qwen3.5 have it, forward and adjoint.

Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024, in the conventions of Qwen3-Next's GatedDeltaNet.
With D the model's width, Hk key heads and Hv value heads (value head i is served by key head `i // (Hv / Hk)`), K and V
their sizes and W the taps of the convolution::

    q', k', v', z = x projected                       no bias
    qc, kc, vc    = SiLU(causal_conv(q', k', v'))     each channel on its own
    qn, kn        = l2(qc), l2(kc)                    l2(y) = y / sqrt(sum(y^2) + EPSILON) over K
    g, beta       = -exp(A_log) softplus(x a + dt_bias), sigmoid(x b)
    o             = the rule of (qn, kn, vc, g, beta), scale K^-1/2
    y             = out . (norm o / sqrt(mean(o^2) + EPSILON) SiLU(z))

Documents are packed into a row where `segment_ids [B, T]` is given: state and convolution start from nothing wherever
the id is another than that of the token before, and the initial states enter the document of token 0. The final conv
state then holds zeros for tokens of earlier documents.

`float64` and `mp` share this module's names and checks, and no arithmetic. Arrays lie flat in the order of `ARGUMENTS`
and `QUANTITIES`, or as the layer takes them: parameters and conv states in dicts.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

EPSILON = 1e-6

PARAMETERS = ("q", "k", "v", "z", "a", "b", "conv_q", "conv_k", "conv_v", "A_log", "dt_bias", "norm", "out")
PROJECTIONS = PARAMETERS[:6]
CONVOLVED = ("q", "k", "v")

INPUTS = ("x", *PARAMETERS, *(f"conv_state_{name}" for name in CONVOLVED), "recurrent_state")
OUTPUTS = ("y", *(f"final_conv_state_{name}" for name in CONVOLVED), "final_recurrent_state")
COTANGENTS = tuple(f"d{name}" for name in OUTPUTS)
GRADIENTS = tuple(f"d{name}" for name in INPUTS)
ARGUMENTS = INPUTS + COTANGENTS
QUANTITIES = OUTPUTS + GRADIENTS

Arrays = Mapping[str, np.ndarray]


def inputs_of(flat: Arrays) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """`(x, parameters, conv_state, recurrent_state)`, as the layer takes them, of arrays by `INPUTS`."""
    parameters = {name: flat[name] for name in PARAMETERS}
    return flat["x"], parameters, _conv_state(flat, "conv_state"), flat["recurrent_state"]


def cotangents_of(flat: Arrays) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """`(dy, dconv_state, drecurrent_state)`, of the outputs, of arrays by `COTANGENTS`."""
    return flat["dy"], _conv_state(flat, "dfinal_conv_state"), flat["dfinal_recurrent_state"]


def flattened(results: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    """The arrays of the results of `float64` (or `mp`), in the order of `OUTPUTS` or `QUANTITIES`."""
    return tuple(x for one in results for x in (one.values() if isinstance(one, dict) else (one,)))


def shapes(*, B: int, T: int, D: int, Hk: int, Hv: int, K: int, V: int, W: int) -> dict[str, tuple[int, ...]]:
    """The shape of each of `ARGUMENTS`."""
    keys, values = (Hk, K), (Hv, V)
    of = {"q": (D, *keys), "k": (D, *keys), "v": (D, *values), "z": (D, *values), "a": (D, Hv), "b": (D, Hv)}
    of |= {"conv_q": (*keys, W), "conv_k": (*keys, W), "conv_v": (*values, W)}
    of |= {"A_log": (Hv,), "dt_bias": (Hv,), "norm": (V,), "out": (*values, D)}
    of |= {f"conv_state_{name}": (B, W - 1, *of[name][1:]) for name in CONVOLVED}
    of |= {"x": (B, T, D), "y": (B, T, D), "recurrent_state": (B, Hv, K, V)}
    return {
        name: of[name.removeprefix("d").removeprefix("final_") if name in COTANGENTS else name] for name in ARGUMENTS
    }


def check_inputs(
    x: np.ndarray,
    parameters: Arrays,
    conv_state: Arrays,
    recurrent_state: np.ndarray,
    segment_ids: np.ndarray | None,
) -> None:
    """Raise ValueError unless the inputs fit together (shapes as in `shapes`)."""
    _require_keys("parameters", parameters, PARAMETERS)
    _require_keys("conv_state", conv_state, CONVOLVED)
    leading = {"x": x, "q": parameters["q"], "v": parameters["v"], "conv_v": parameters["conv_v"]}
    given = ", ".join(f"{name} {array.shape}" for name, array in leading.items())
    if any(array.ndim != 3 for array in leading.values()):
        raise ValueError(f"x must be [B, T, D], q [D, Hk, K], v [D, Hv, V] and conv_v [Hv, V, W]; got {given}")
    (B, T, D), (_, Hk, K), (_, Hv, V), (*_, W) = (array.shape for array in leading.values())
    if Hk == 0 or Hv == 0 or Hv % Hk:
        raise ValueError(f"Hv must be a multiple of Hk; got Hv = {Hv} (of v) and Hk = {Hk} (of q)")
    if 0 in (D, K, V, W):
        raise ValueError(f"D, K, V and W, the number of taps, must be positive; got {D}, {K}, {V} and {W}")
    flat = {"x": x, **parameters, **_named("conv_state", conv_state), "recurrent_state": recurrent_state}
    expected = shapes(B=B, T=T, D=D, Hk=Hk, Hv=Hv, K=K, V=V, W=W)
    for name, array in flat.items():
        if array.shape != expected[name]:
            raise ValueError(f"with {given}, {name} must have shape {expected[name]}; got {array.shape}")
    if segment_ids is not None and (segment_ids.shape != (B, T) or segment_ids.dtype.kind not in "iu"):
        got = f"{segment_ids.dtype} {segment_ids.shape}"
        raise ValueError(f"with {given}, segment_ids must be integers of shape {B, T}, one id a token; got {got}")


def check_cotangents(
    x: np.ndarray,
    conv_state: Arrays,
    recurrent_state: np.ndarray,
    dy: np.ndarray,
    dfinal_conv_state: Arrays,
    dfinal_recurrent_state: np.ndarray,
) -> None:
    """Raise ValueError unless the cotangents have the shapes of the outputs: nothing is broadcast."""
    _require_keys("dfinal_conv_state", dfinal_conv_state, CONVOLVED)
    outputs = {"y": x, **_named("final_conv_state", conv_state), "final_recurrent_state": recurrent_state}
    cotangents = (dy, *_named("", dfinal_conv_state).values(), dfinal_recurrent_state)
    for (name, output), cotangent in zip(outputs.items(), cotangents, strict=True):
        if cotangent.shape != output.shape:
            raise ValueError(f"d{name} must have the shape of {name}, {output.shape}; got {cotangent.shape}")


def _conv_state(flat: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {name: flat[f"{prefix}_{name}"] for name in CONVOLVED}


def _named(prefix: str, conv_state: Arrays) -> dict[str, np.ndarray]:
    """The inverse of `_conv_state`."""
    return {f"{prefix}_{name}": conv_state[name] for name in CONVOLVED}


def _require_keys(what: str, arrays: Arrays, keys: tuple[str, ...]) -> None:
    if set(arrays) != set(keys):
        missing, unknown = sorted(set(keys) - set(arrays)), sorted(set(arrays) - set(keys))
        raise ValueError(f"{what} must have the keys {', '.join(keys)}; missing: {missing}, unknown: {unknown}")
