"""Accelerators behind `workloads.accelerator`: the CUDA device, the emulated device and
its profiles."""
