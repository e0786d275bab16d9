// Python bindings of the cache policies' trace simulator.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <utility>

#include "bind.hpp"
#include "policies.hpp"

namespace outcore {
void bind_policies(nb::module_& m) {
    m.def(
        "dense_rows",
        [](const Ids& ids, std::uint64_t num_nodes) {
            DenseRows dense;
            {
                const nb::gil_scoped_release release;
                dense = dense_rows(span_of(ids), num_nodes);
            }
            return std::pair{to_numpy(std::move(dense.rows)), dense.num_rows};
        },
        nb::arg("ids"), nb::arg("num_nodes"));
    m.def(
        "policy_misses",
        [](const std::string& name, const In<std::uint32_t>& rows, const Ids& begins, std::uint32_t num_rows, const Ids& sizes,
           unsigned threads) {
            const auto policy = policy_named(name);
            if (!policy) throw std::invalid_argument("there is no policy " + name);
            std::vector<std::int64_t> misses;
            {
                const nb::gil_scoped_release release;
                misses = policy_misses(*policy, {span_of(rows), span_of(begins), num_rows}, span_of(sizes),
                                       threads);
            }
            return to_numpy(std::move(misses));
        },
        nb::arg("policy"), nb::arg("rows"), nb::arg("begins"), nb::arg("num_rows"), nb::arg("sizes"), nb::arg("threads"));
}

}  // namespace outcore
