from parity.properties import causality
from parity.properties.subjects import each_subject


@each_subject
def test_outputs_do_not_see_later_tokens(hold, subject):
    hold(causality.outputs_do_not_see_later_tokens, subject)


@each_subject
def test_gradients_do_not_see_earlier_cotangents(hold, subject):
    hold(causality.gradients_do_not_see_earlier_cotangents, subject)
