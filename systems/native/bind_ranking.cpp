// Python bindings of the ranking kernels.
#include "bind.hpp"

namespace outcore {

void bind_ranking(nb::module_&) {}

}  // namespace outcore
