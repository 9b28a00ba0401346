from parity.properties import pairings
from parity.properties.subjects import each_subject


@each_subject
def test_outputs_pair_as_inputs_do(hold, subject):
    hold(pairings.outputs_pair_as_inputs_do, subject)


@each_subject
def test_keys_balance_values(hold, subject):
    hold(pairings.keys_balance_values, subject)


@each_subject
def test_queries_pair_as_outputs_do(hold, subject):
    hold(pairings.queries_pair_as_outputs_do, subject)


@each_subject
def test_gates_pair_with_states(hold, subject):
    hold(pairings.gates_pair_with_states, subject)
