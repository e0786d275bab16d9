// Bindings of the sampling part of workloads._native.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_sampling(nb::module_& m) { (void)m; }
