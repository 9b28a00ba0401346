"""A million tokens: what a chip holds, from the programs for 262,144 tokens over 8 chips and 1,048,576 over 64.

The form that landed upstream takes 12.76 and 6.38 GB of temporaries a chip, in the same compiler and for the same
shapes. `benchmarks/tpu_cost.py` makes a table of all forms.
"""

import pytest

from parity.compiled.programs import temporaries
from parity.tpu.long import LONG, LONGEST, compile_long

pytestmark = pytest.mark.tpu_aot

UPSTREAM = {LONG: 12.76e9, LONGEST: 6.38e9}
STATES = 32 * 4 * 128 * 128  # bytes of those of all heads


@pytest.mark.parametrize("form", ["least_memory", "least_memory with kernels"])
@pytest.mark.parametrize("run", UPSTREAM, ids=["262144 over 8", "1048576 over 64"])
def test_the_least_memory_is_less_than_half_of_upstreams(run, form):
    assert temporaries(compile_long(form, run)) < UPSTREAM[run] / 2


def test_checkpoint_on_the_fold_saves_a_state_a_chunk():
    chunks = LONG.tokens // LONG.ranks // 64
    without, with_it = (temporaries(compile_long(form, LONG)) for form in ("fold without checkpoint", "fold"))
    assert without - with_it >= 0.9 * chunks * STATES
