from parity.properties import composition
from parity.properties.subjects import each


@each(composition.COMPOSERS)
def test_associativity(hold, subject):
    hold(composition.associativity, subject)


@each(composition.COMPOSERS)
def test_identity(hold, subject):
    hold(composition.identity, subject)
