"""The counter is right on programs whose FLOPs are known, and refuses what it would undercount."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from parity.compiled.flops import Flops, cheapest, flops
from parity.compiled.hlo import UnreadableProgram
from parity.layouts import AXES
from parity.meshes import context_mesh

ONE_PRODUCT = 2 * 8**3  # of two 8 x 8 matrices


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def compiled(function, *arguments):
    return jax.jit(function).lower(*arguments).compile()


def count(function, *arguments, **keywords):
    return flops(compiled(function, *arguments).as_text(), **keywords)


def powers(x, times, **keywords):
    return jax.lax.scan(lambda x, _: (jnp.tanh(x @ x), None), x, length=times, **keywords)[0]


# What is counted


@pytest.mark.parametrize(
    ("subscripts", "shapes", "wanted"),
    [
        ("ij,jk->ik", [(4, 5), (5, 6)], 2 * 4 * 5 * 6),
        ("ij,kj->ik", [(4, 5), (6, 5)], 2 * 4 * 5 * 6),
        ("bij,bjk->bik", [(3, 4, 5), (3, 5, 6)], 3 * 2 * 4 * 5 * 6),
        ("bhck,bhcv->bhkv", [(2, 3, 4, 5), (2, 3, 4, 6)], 6 * 2 * 4 * 5 * 6),
        ("ijk,jkl->il", [(4, 5, 6), (5, 6, 7)], 2 * 4 * 30 * 7),
        ("ij,j->i", [(4, 5), (5,)], 2 * 4 * 5),
    ],
)
def test_a_product_is_two_flops_a_multiply_add(subscripts, shapes, wanted):
    assert count(lambda *x: jnp.einsum(subscripts, *x), *(array(*shape) for shape in shapes)) == Flops(dots=wanted)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.bfloat16])
def test_whatever_it_is_computed_in(dtype):
    with jax.enable_x64(True):
        assert count(jnp.matmul, array(8, 8, dtype=dtype), array(8, 8, dtype=dtype)).total == ONE_PRODUCT


def test_a_triangular_solve_is_that_of_lapack():
    def solve(a, b):
        return jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=True)

    assert count(solve, array(3, 8, 8), array(3, 8, 5)) == Flops(solves=3 * 8 * 8 * 5)


def test_what_is_not_used_is_not_counted_and_what_is_used_twice_once():
    def program(x):
        _ = x @ jnp.tanh(x)
        return jnp.sin(x @ x) + jnp.cos(x @ x)

    assert count(program, array(8, 8)).total == ONE_PRODUCT


# Loops


@pytest.mark.parametrize("times", [1, 2, 7])
def test_a_loop_counts_as_often_as_it_runs(times):
    assert count(lambda x: powers(x, times), array(8, 8)).total == times * ONE_PRODUCT


def test_a_loop_in_a_loop_counts_as_often_as_both_run():
    def program(x):
        return jax.lax.fori_loop(0, 5, lambda _, x: powers(x, 3) @ x, x)

    assert count(program, array(8, 8)).total == 5 * (3 + 1) * ONE_PRODUCT


@pytest.mark.parametrize("unroll", [1, 2, 3, 7])
def test_a_loop_costs_what_it_costs_unrolled(unroll):
    assert count(lambda x: powers(x, 7, unroll=unroll), array(8, 8)).total == 7 * ONE_PRODUCT


def test_the_backward_of_a_loop_is_two_loops():
    """A product forward, and two backward."""
    found = count(jax.grad(lambda x: powers(x, 5).sum()), array(8, 8))
    assert found.total == 5 * (1 + 2) * ONE_PRODUCT


def test_the_condition_is_asked_once_more():
    head = "HloModule m\n\n%c (p: f32[8,8]) -> pred[] {\n  %p = f32[8,8]{1,0} parameter(0)\n"
    product = "  %x = f32[8,8]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n\n"
    body = "%b (p: f32[8,8]) -> f32[8,8] {\n  %p = f32[8,8]{1,0} parameter(0)\n" + product
    loop = '  %y = f32[8,8]{1,0} while(%q), condition=%c, body=%b, backend_config={"known_trip_count":{"n":"3"}}\n}'
    main = "ENTRY %main (q: f32[8,8]) -> f32[8,8] {\n  %q = f32[8,8]{1,0} parameter(0)\n"
    assert flops(head + product + body + main + loop).total == (4 + 3) * ONE_PRODUCT


# Against the compiler's own count


@pytest.mark.parametrize(
    "program",
    [
        lambda a, b: a @ b,
        lambda a, b: (a @ b) @ b.T,
        lambda a, b: jnp.einsum("bij,bjk->bik", a.reshape(2, 4, 8), b.reshape(2, 8, 4)),
    ],
    ids=["one", "two", "batch"],
)
def test_without_a_loop_the_compiler_counts_the_same(program):
    found = compiled(program, array(8, 8), array(8, 8))
    assert flops(found.as_text()).total == found.cost_analysis()["flops"]


def test_the_compiler_counts_the_body_of_a_loop_once():
    once, often = (compiled(lambda x, times=times: powers(x, times), array(8, 8)) for times in (2, 100))
    assert often.cost_analysis()["flops"] - once.cost_analysis()["flops"] == 0
    assert ONE_PRODUCT <= often.cost_analysis()["flops"] < 2 * ONE_PRODUCT
    assert flops(often.as_text()).total == 100 * ONE_PRODUCT


# Branches


def test_of_a_conditional_the_dearest_branch_counts_unless_another_is_asked_for():
    def program(n, x):
        return jax.lax.switch(n, [lambda x: x @ x, lambda x: powers(x, 3), lambda x: x], x)

    arguments = array(dtype=jnp.int32), array(8, 8)
    assert count(program, *arguments).total == 3 * ONE_PRODUCT
    assert count(program, *arguments, of_branches=cheapest).total == 0
    assert count(program, *arguments, of_branches=lambda costs: sum(costs, Flops())).total == 4 * ONE_PRODUCT


def test_the_count_is_that_of_one_device():
    x = jax.ShapeDtypeStruct((4, 8, 8), jnp.float32, sharding=NamedSharding(context_mesh(4), PartitionSpec(AXES)))
    assert count(lambda x: jnp.einsum("rij,rjk->rik", x, x), x).total == ONE_PRODUCT


# What is refused


def test_a_loop_that_does_not_say_how_often_it_runs_is_refused():
    def program(x, n):
        return jax.lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] @ s[0], s[1] + 1), (x, 0))

    with pytest.raises(UnreadableProgram, match="how often this runs is not said"):
        count(program, array(8, 8), array(dtype=jnp.int32))


def test_a_loop_without_products_costs_nothing_however_often_it_runs():
    assert count(lambda n: jax.lax.fori_loop(0, n, lambda i, x: x + i, 0), array(dtype=jnp.int32)) == Flops()


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [("bk,bk->b", [(4, 8), (4, 8)]), ("ik,kj->ij", [(4, 1), (1, 8)])],
    ids=["inner", "outer"],
)
def test_a_product_that_the_compiler_made_elementwise_is_refused(subscripts, shapes):
    with pytest.raises(UnreadableProgram, match="made elementwise"):
        count(lambda *x: jnp.einsum(subscripts, *x), *(array(*shape) for shape in shapes))


def test_products_of_other_kinds_are_refused():
    with pytest.raises(UnreadableProgram, match="a convolution is not counted"):
        count(jnp.convolve, array(64), array(5))
    with pytest.raises(UnreadableProgram, match="a call of something whose cost is not known"):
        count(jnp.linalg.cholesky, array(8, 8))


def test_text_that_cannot_be_read_is_refused():
    with pytest.raises(UnreadableProgram, match="begins with HloModule"):
        flops("module @jit_f {}")
    with pytest.raises(UnreadableProgram, match="no computation is the ENTRY"):
        flops("HloModule m\n\n%f (p: f32[2]) -> f32[2] {\n  %x = f32[2] parameter(0)\n}")
    head = "HloModule m\n\nENTRY %main (p: f32[2]) -> f32[2] {\n"
    with pytest.raises(UnreadableProgram, match="whose shape is not known"):
        flops(head + "  %x = f32[8,8] dot(%y, %z), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}")
    with pytest.raises(UnreadableProgram, match="an instruction that is not understood"):
        flops(head + "  %x = f32[8,8]\n}")
    with pytest.raises(UnreadableProgram, match="g is called, and not there"):
        flops(head + "  %x = f32[8,8] fusion(%p), kind=kLoop, calls=%g\n}")
