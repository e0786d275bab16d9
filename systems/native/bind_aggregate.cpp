// Python bindings of the aggregation kernels.
#include "aggregate.hpp"
#include "bind.hpp"

namespace outcore {
namespace {

template <class Id>
void bind_ids(nb::module_& m) {
    m.def(
        "count_by_piece",
        [](const In<Id>& sources, std::uint64_t num_nodes, std::uint64_t piece_rows, const Out<std::int64_t>& counts) {
            const nb::gil_scoped_release release;
            return count_by_piece(span_of(sources), num_nodes, piece_rows, span_of(counts));
        },
        nb::arg("sources").noconvert(), nb::arg("num_nodes"), nb::arg("piece_rows"), nb::arg("counts").noconvert());
    m.def(
        "place_by_piece",
        [](const In<Id>& sources, const In<std::int64_t>& indptr, std::int64_t first_edge, std::uint64_t piece_rows,
           const Out<std::int64_t>& next, const Out<std::uint64_t>& edges) {
            const nb::gil_scoped_release release;
            return place_by_piece(span_of(sources), span_of(indptr), first_edge, piece_rows, span_of(next),
                                  std::span<PieceEdge>(reinterpret_cast<PieceEdge*>(edges.data()), edges.size()));
        },
        nb::arg("sources").noconvert(), nb::arg("indptr").noconvert(), nb::arg("first_edge"), nb::arg("piece_rows"),
        nb::arg("next").noconvert(), nb::arg("edges").noconvert());
    m.def(
        "count_loops",
        [](const In<Id>& sources, const In<std::int64_t>& indptr, std::int64_t first_target, std::int64_t first_edge,
           const Out<std::int32_t>& loops) {
            const nb::gil_scoped_release release;
            return count_loops(span_of(sources), span_of(indptr), first_target, first_edge, span_of(loops));
        },
        nb::arg("sources").noconvert(), nb::arg("indptr").noconvert(), nb::arg("first_target"), nb::arg("first_edge"),
        nb::arg("loops").noconvert());
}

}  // namespace

void bind_aggregate(nb::module_& m) {
    bind_ids<std::int32_t>(m);
    bind_ids<std::int64_t>(m);
    m.def(
        "add_rows",
        [](const In<std::uint64_t>& edges, const In<float>& rows, const Out<float>& sums, std::uint64_t dim,
           const In<float>& weights, std::uint64_t first_row, std::uint64_t first_target, bool skip_loops,
           unsigned threads) {
            if (weights.size() != 0 && weights.size() * dim < rows.size()) throw std::out_of_range("too few weights");
            const nb::gil_scoped_release release;
            return add_rows(std::span<const PieceEdge>(reinterpret_cast<const PieceEdge*>(edges.data()), edges.size()),
                            RowSums{span_of(rows), span_of(sums), dim, span_of(weights), first_row, first_target, skip_loops}, threads);
        },
        nb::arg("edges").noconvert(), nb::arg("rows").noconvert(), nb::arg("sums").noconvert(), nb::arg("dim"),
        nb::arg("weights").noconvert(), nb::arg("first_row"), nb::arg("first_target"), nb::arg("skip_loops"),
        nb::arg("threads"));
}

}  // namespace outcore
