"""Proof and measurement of the GPU path, in three phases (`scripts/gpu`, `make
gpu`)."""
