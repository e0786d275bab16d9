"""Walls between a worker and the host: its sandbox, what it shows of the host, and the
system calls that it refuses."""
