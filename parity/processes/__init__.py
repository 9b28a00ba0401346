"""A part of the gate on several processes, as a job on several hosts runs: no process sees the devices of another."""
