// Python bindings of systems._native.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_native, m) {
    m.doc() = "Native code of the systems layer.";
}
