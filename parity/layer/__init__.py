"""The GatedDeltaNet layer as it is put to the test: what is asked, what is answered, how far off it is, and why."""
