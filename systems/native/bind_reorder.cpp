// Python bindings of the reordering kernels.
#include "bind.hpp"
#include "reorder.hpp"

namespace outcore {
namespace {

template <class Id>
void bind_ids(nb::module_& m) {
    m.def(
        "relocate_edges",
        [](const In<Id>& sources, const Ids& indptr, std::int64_t first_target, std::int64_t first_edge, const Ids& places,
           const Ids& new_indptr, std::int64_t first, const Out<Id>& out, unsigned threads) {
            if (new_indptr.size() != places.size() + 1) throw std::out_of_range("new_indptr is of another graph");
            const nb::gil_scoped_release release;
            return relocate_edges(span_of(sources), span_of(indptr), first_target, first_edge, span_of(places),
                                  span_of(new_indptr), first, std::span<Id>(out.data(), out.size()), threads);
        },
        nb::arg("sources").noconvert(), nb::arg("indptr").noconvert(), nb::arg("first_target"), nb::arg("first_edge"),
        nb::arg("places").noconvert(), nb::arg("new_indptr").noconvert(), nb::arg("first"), nb::arg("out").noconvert(),
        nb::arg("threads"));
}

}  // namespace

void bind_reorder(nb::module_& m) {
    bind_ids<std::int32_t>(m);
    bind_ids<std::int64_t>(m);
    m.def(
        "scatter_rows",
        [](const ReadOnlyBytes& rows, const Ids& places, std::int64_t first, const Bytes& out, unsigned threads) {
            if (rows.shape(1) != out.shape(1) || rows.shape(1) == 0) throw std::invalid_argument("rows differ in size");
            if (rows.shape(0) < places.size()) throw std::out_of_range("fewer rows than places");
            const nb::gil_scoped_release release;
            scatter_rows({reinterpret_cast<const std::byte*>(rows.data()), rows.size()}, rows.shape(1), span_of(places),
                         first, {reinterpret_cast<std::byte*>(out.data()), out.size()}, threads);
        },
        nb::arg("rows"), nb::arg("places").noconvert(), nb::arg("first"), nb::arg("out"), nb::arg("threads"));
}

}  // namespace outcore
