// Python bindings of the policies kernels.
#include "bind.hpp"

namespace outcore {

void bind_policies(nb::module_&) {}

}  // namespace outcore
