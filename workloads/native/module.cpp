// Python bindings of workloads._native: one bind_* function for each part, defined beside the part.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_sampling(nb::module_& m);
void bind_making(nb::module_& m);

NB_MODULE(_native, m) {
    m.doc() = "Sampling, relabelling, generation and CSC building.";
    bind_sampling(m);
    bind_making(m);
}
