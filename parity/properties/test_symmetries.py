from parity.properties import symmetries
from parity.properties.subjects import each_subject


@each_subject
def test_superposition(hold, subject):
    hold(symmetries.superposition, subject)


@each_subject
def test_flip(hold, subject):
    hold(symmetries.flip, subject)


@each_subject
def test_rescaled_keys(hold, subject):
    hold(symmetries.rescaled_keys, subject)


@each_subject
def test_rotation(hold, subject):
    hold(symmetries.rotation, subject)


@each_subject
def test_independence(hold, subject):
    hold(symmetries.independence, subject)
