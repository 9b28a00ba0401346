import numpy as np
import pytest

from oracles.stream import Stream

PINNED = Stream("pinned")
MANY = 20_000


# The literals were computed from hashlib.shake_256(b"pinned/<label>") with Python integers and fractions alone.
def test_uniform_is_pinned():
    expected = [7874734757214186, 3197408745716859, 2156664909874545]
    assert (PINNED.uniform("u", 3) * 2.0**53).tolist() == expected


def test_normal_is_pinned():
    assert (PINNED.normal("n", 3) * 2.0**32).tolist() == [5550960372, 1782345222, -3406522941]


def test_integers_are_pinned():
    assert PINNED.integers("i", 1000, 6).tolist() == [389, 827, 899, 919, 821, 594]
    assert int(PINNED.integers("i", 1000)) == 389


def test_signs_are_pinned():
    assert PINNED.signs("s", 8).tolist() == [-1, -1, 1, 1, 1, -1, 1, 1]


@pytest.mark.parametrize("draw", ["uniform", "normal", "signs"])
def test_a_draw_depends_on_name_and_label_alone(draw):
    def numbers(name, label, *earlier):
        stream = Stream(name)
        for other in earlier:
            getattr(stream, draw)(other, 5)
        return getattr(stream, draw)(label, 64).tolist()

    alone = numbers("one", "x")
    assert numbers("one", "x", "a", "b", "x") == alone
    assert numbers("one", "y") != alone
    assert numbers("two", "x") != alone


def test_labels_are_uncorrelated():
    stream = Stream("labels")
    columns = np.stack([stream.normal(label, MANY) for label in ("a", "b", "a ", "A", "aa", "")])
    off_diagonal = np.corrcoef(columns) - np.eye(len(columns))
    assert np.max(np.abs(off_diagonal)) < 5 / np.sqrt(MANY)


@pytest.mark.parametrize("shape", [(0,), (6,), (2, 3), (3, 1, 2)])
def test_a_shape_is_filled_in_row_major_order(shape):
    for draw in (PINNED.uniform, PINNED.normal, PINNED.signs, lambda label, *n: PINNED.integers(label, 10, *n)):
        count = int(np.prod(shape))
        assert draw("shape", *shape).shape == shape
        assert draw("shape", *shape).ravel().tolist() == draw("shape", count).tolist()


def test_uniform_range_and_moments():
    x = Stream("range").uniform("u", MANY)
    assert x.dtype == np.float64
    assert x.min() >= 0
    assert x.max() < 1
    assert np.all(x * 2.0**53 == np.floor(x * 2.0**53))
    assert abs(x.mean() - 1 / 2) < 5 / np.sqrt(12 * MANY)
    assert abs(np.mean((x - 0.5) ** 2) - 1 / 12) < 5 / np.sqrt(180 * MANY)


def test_normal_range_and_moments():
    x = Stream("range").normal("n", MANY)
    assert x.dtype == np.float64
    assert np.max(np.abs(x)) < 6
    assert abs(x.mean()) < 5 / np.sqrt(MANY)
    assert abs(x.var() - 1) < 5 * np.sqrt(2 / MANY)
    assert abs(np.mean(x**3)) < 5 * np.sqrt(15 / MANY)
    # Twelve uniforms have excess kurtosis -1.2 / 12.
    assert abs(np.mean(x**4) - 2.9) < 5 * np.sqrt(96 / MANY)


def test_integers_reach_their_whole_range_evenly():
    x = Stream("range").integers("i", 7, MANY)
    assert x.dtype == np.int64
    counts = np.bincount(x, minlength=7)
    assert len(counts) == 7
    assert np.max(np.abs(counts - MANY / 7)) < 5 * np.sqrt(MANY / 7)


def test_signs_are_one_or_minus_one_evenly():
    x = Stream("range").signs("s", MANY)
    assert set(x.tolist()) == {-1.0, 1.0}
    assert abs(x.mean()) < 5 / np.sqrt(MANY)
