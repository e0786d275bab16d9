// Python bindings of the ranking kernels.
#include "bind.hpp"
#include "ranking.hpp"

namespace outcore {
namespace {

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Id, class Count>
void bind_count(nb::module_& m) {
    m.def(
        "count_ids",
        [](const In<Id>& ids, const Out<Count>& counts) {
            const nb::gil_scoped_release release;
            return count_ids(std::span<const Id>(ids.data(), ids.size()), std::span<Count>(counts.data(), counts.size()));
        },
        nb::arg("ids").noconvert(), nb::arg("counts").noconvert());
}

}  // namespace

void bind_ranking(nb::module_& m) {
    bind_count<std::int32_t, std::int32_t>(m);
    bind_count<std::int32_t, std::int64_t>(m);
    bind_count<std::int64_t, std::int32_t>(m);
    bind_count<std::int64_t, std::int64_t>(m);
}

}  // namespace outcore
