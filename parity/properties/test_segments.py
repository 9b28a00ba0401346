from parity.properties import segments
from parity.properties.subjects import each_subject


@each_subject
def test_state_passing(hold, subject):
    hold(segments.state_passing, subject)


@each_subject
def test_padding_behind(hold, subject):
    hold(segments.padding_behind, subject)


@each_subject
def test_padding_in_front(hold, subject):
    hold(segments.padding_in_front, subject)
