// Python bindings of the partition kernels.
#include "bind.hpp"

namespace outcore {

void bind_partition(nb::module_&) {}

}  // namespace outcore
