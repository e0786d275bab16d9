// Python bindings of workloads._native.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_native, m) {
    m.doc() = "Native code of the workloads layer.";
}
