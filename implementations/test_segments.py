"""Ids of documents: what counts as a start, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.segments import changes, check_segment_ids, numbered, starts

IDS = jnp.asarray([[7, 7, 2, 2, 7, -1], [0, 1, 2, 2, 2, 2]])


def test_a_document_starts_where_the_id_changes_and_may_have_one_that_was_there():
    assert starts(IDS).astype(int).tolist() == [[0, 0, 1, 0, 1, 1], [0, 1, 1, 0, 0, 0]]
    assert numbered(starts(IDS)).tolist() == [[0, 0, 1, 1, 2, 3], [0, 1, 2, 2, 2, 2]]
    assert starts(None) is None


def test_the_id_before_the_first_token_may_be_another():
    assert changes(IDS, jnp.asarray([[7], [4]]))[:, 0].tolist() == [False, True]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (np.zeros((2, 6)), "must be an array of integers.*got float64"),
        (np.zeros((2, 6), bool), "must be an array of integers.*got bool"),
        (np.zeros((2, 5), int), r"of shape \(2, 6\), one for each token; got int64\[2, 5\]"),
        ([[0] * 6] * 2, r"must be an array of integers.*got \[\[0"),
        (np.arange(12).reshape(2, 6) * 2**32, "fit into int32, to which jax cuts int64 .*up to 47244640256: number"),
        (-np.arange(12).reshape(2, 6) * 2**32, "fit into int32"),
        (np.full((2, 6), 2**32 - 1, np.uint64) + 1, "fit into uint32"),
    ],
    ids=["floats", "bools", "shape", "list", "large", "small", "unsigned"],
)
def test_what_are_no_ids_is_refused(ids, says):
    with pytest.raises(ValueError, match=says):
        check_segment_ids(ids, 2, 6)


@pytest.mark.usefixtures("unchecked")
def test_ids_that_fit_are_taken_and_with_x64_all_do():
    check_segment_ids(np.full((2, 6), 2**31 - 1), 2, 6)
    with jax.enable_x64(True):
        check_segment_ids(np.full((2, 6), 2**40), 2, 6)
