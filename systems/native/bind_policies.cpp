// Python bindings of the cache policies' trace simulator.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <utility>

#include "bind.hpp"
#include "policies.hpp"

namespace outcore {
namespace {

using Rows = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using RowsOut = nb::ndarray<nb::numpy, std::uint32_t, nb::ndim<1>>;

}  // namespace

void bind_policies(nb::module_& m) {
    m.def(
        "dense_rows",
        [](const Ids& ids, std::uint64_t num_nodes) {
            DenseRows dense;
            {
                const nb::gil_scoped_release release;
                dense = dense_rows(span_of(ids), num_nodes);
            }
            auto* kept = new std::vector<std::uint32_t>(std::move(dense.rows));
            nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<std::uint32_t>*>(p); });
            return std::pair{RowsOut(kept->data(), {kept->size()}, owner), dense.num_rows};
        },
        nb::arg("ids"), nb::arg("num_nodes"));
    m.def(
        "policy_misses",
        [](const std::string& name, const Rows& rows, const Ids& begins, std::uint32_t num_rows, const Ids& sizes,
           unsigned threads) {
            const auto policy = policy_named(name);
            if (!policy) throw std::invalid_argument("there is no policy " + name);
            std::vector<std::int64_t> misses;
            {
                const nb::gil_scoped_release release;
                misses = policy_misses(*policy, {{rows.data(), rows.size()}, span_of(begins), num_rows}, span_of(sizes),
                                       threads);
            }
            return to_numpy(std::move(misses));
        },
        nb::arg("policy"), nb::arg("rows"), nb::arg("begins"), nb::arg("num_rows"), nb::arg("sizes"), nb::arg("threads"));
}

}  // namespace outcore
