from parity.properties import invariance
from parity.properties.subjects import each_context_parallel_subject, each_subject


@each_subject
def test_chunk_size(hold, subject):
    hold(invariance.chunk_size, subject)


@each_context_parallel_subject
def test_rank_count(hold, subject):
    hold(invariance.rank_count, subject)
