"""Telemetry of the host, the cap, the disk and the GPU, sampled from outside the
cap."""
