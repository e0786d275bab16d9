"""The accelerators behind `workloads.accelerator`: CUDA, the emulated one, and the profiles it is emulated from."""
