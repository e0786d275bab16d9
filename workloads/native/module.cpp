// Python bindings of workloads._native: one bind_* function for each part, defined beside the part.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace outcore {
void bind_sampling(nb::module_& m);
void bind_features(nb::module_& m);
void bind_fractal(nb::module_& m);
void bind_kronecker(nb::module_& m);
void bind_measures(nb::module_& m);
void bind_rmat(nb::module_& m);
}  // namespace outcore

NB_MODULE(_native, m) {
    m.doc() = "Sampling, relabelling, generation and CSC building.";
    for (const auto bind : {outcore::bind_sampling, outcore::bind_features, outcore::bind_fractal,
                            outcore::bind_kronecker, outcore::bind_measures, outcore::bind_rmat})
        bind(m);
}
