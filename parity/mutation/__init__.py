"""Whether the tests of the comparator and of the limits notice every small change of these."""
