// Bindings of the generate part of workloads._native.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_generate(nb::module_& m) { (void)m; }
