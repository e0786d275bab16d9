// Python bindings of the packing kernels.
#include "bind.hpp"

namespace outcore {

void bind_packing(nb::module_&) {}

}  // namespace outcore
