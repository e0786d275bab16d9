// Python bindings of the changeset kernels.
#include "bind.hpp"

namespace outcore {

void bind_changeset(nb::module_&) {}

}  // namespace outcore
