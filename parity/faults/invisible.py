"""Mistakes that no result can show: what they change is never read, or is multiplied by zero.

Each has its proof, and a test that it passes. Notation as in `implementations.chunked`.
"""

from dataclasses import dataclass, replace
from functools import cache, partial

from implementations.contract import Implementation
from parity.faults.branches import RIGHT_ADJOINT, UNMASKED_ADJOINT, inverse_with_adjoint
from parity.faults.chunk import INVERSE, S
from parity.faults.edits import Edit, edited
from parity.faults.padding import padded_with

_chunked = partial(Edit, "implementations.chunked")
_inversion = partial(Edit, "implementations.ut_inversion.substitution")


@dataclass(frozen=True)
class Invisible:
    """An edit of `chunked` after which every result is the same, and why."""

    name: str
    cause: str
    proof: str
    edits: tuple[Edit, ...]

    @property
    def implementation(self) -> Implementation:
        """The same record each time."""
        return _implementation(self)


@cache
def _implementation(invisible: Invisible) -> Implementation:
    record: Implementation = edited("implementations.chunked:CHUNKED", *invisible.edits)
    return replace(record, name=invisible.name)


_PADS_COME_LAST = (
    "Padded tokens come last in the last chunk, and S, T and the attention are lower triangular: rows of real tokens "
    "do not see them. Their own rows of o are cut off, with cotangent 0. So they matter only through the state, to "
    "which a padded token i adds k_i e_i^T (and g = 0 leaves the decay alone). "
)

INVISIBLE = (
    Invisible(
        "pads_with_keys",
        "padded tokens have keys (and no value, no beta)",
        _PADS_COME_LAST + "e_i = beta_i (v_i - h~^T k_i) = 0 for beta_i = 0, whatever k_i is. In the backward each "
        "gradient of a padded token is cut off by the padding, and those of real tokens hold a factor beta_i or the "
        "cotangent of a cut-off row.",
        padded_with(k="0.25"),
    ),
    Invisible(
        "pads_with_values",
        "padded tokens have values (and no key, no beta)",
        _PADS_COME_LAST + "k_i e_i^T = 0 for k_i = 0, and e_i = 0 for beta_i = 0.",
        padded_with(v="1.0"),
    ),
    Invisible(
        "pads_with_beta",
        "padded tokens have beta 1 and values (and no key)",
        _PADS_COME_LAST + "k_i e_i^T = 0 for k_i = 0, whatever e_i is; row i of S and of w holds a factor k_i = 0 too.",
        padded_with(v="1.0", beta="1.0"),
    ),
    Invisible(
        "pads_with_queries",
        "padded tokens have queries",
        "A query is read in its own row of o alone, which is cut off, with cotangent 0.",
        padded_with(q="1.0"),
    ),
    Invisible(
        "s_mask_with_diagonal",
        "the mask of S includes the diagonal, before a substitution with unit diagonal",
        "Row i of forward substitution is T_i = I_i - sum over j < i of S_ij T_j: S_ii is not read, and its adjoint "
        "is 0. (With an inverse that reads it, this is the fault s_with_diagonal.)",
        (_chunked(S, S.replace("-1)", "0)")),),
    ),
    Invisible(
        "s_not_masked",
        "S is not masked at all, before a substitution that reads its strictly lower part",
        "As above, S_ij for j >= i is not read, and its adjoint is 0. D is 0 there, so that nothing overflows either.",
        (_chunked(S, S.replace("jnp.tril(", "(").replace(", -1)", ")")),),
    ),
    Invisible(
        "adjoint_of_t_not_masked",
        "dS = -(T^T dT T^T) is not masked strictly lower, after a mask of S",
        "S = tril(X, -1), so that dX = tril(dS, -1): the mask is its own adjoint, and masks dS once more. (Without the "
        "mask of S this is the fault inverse_adjoint_not_masked.)",
        (_inversion(INVERSE, inverse_with_adjoint(UNMASKED_ADJOINT)),),
    ),
    Invisible(
        "adjoint_of_t_by_hand",
        "the adjoint of T written by hand, as the faults in it are",
        "The adjoint of X -> X^-1 at I + S is dT -> -(T^T dT T^T), of which the strictly lower part is that of S. No "
        "mistake at all: it shows that the faults in it are in the formula, and not in the way they are planted.",
        (_inversion(INVERSE, inverse_with_adjoint(RIGHT_ADJOINT)),),
    ),
    Invisible(
        "scale_on_the_outputs",
        "the scale is applied to o, not to q",
        "o = scale h^T q is linear in q. Where the scale is a power of two even the rounding is the same.",
        (
            _chunked("    q = scale * q\n", ""),
            _chunked(
                "return join(o, v.shape[1]).astype",
                "return (join(o, v.shape[1]) * (q.shape[-1] ** -0.5 if scale is None else scale)).astype",
            ),
        ),
    ),
    Invisible(
        "loose_gate_clamp",
        "gates are clamped at -800",
        "exp(-800) is 0 in f64, as is exp of anything below: no smaller gate changes a decay, and dg = <L, h~> = 0.",
        (_chunked("G = jnp.cumsum(g, axis=-1)", "g = jnp.maximum(g, -800.0)\n    G = jnp.cumsum(g, axis=-1)"),),
    ),
)
