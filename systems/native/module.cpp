// Python bindings of systems._native: one bind_* function for each part, defined beside the part.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace outcore {
void bind_reader(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_feature_buffer(nb::module_& m);
}  // namespace outcore

NB_MODULE(_native, m) {
    m.doc() = "Direct-I/O reader, gather, page cache and feature buffer.";
    outcore::bind_reader(m);
    outcore::bind_memory(m);
    outcore::bind_feature_buffer(m);
}
