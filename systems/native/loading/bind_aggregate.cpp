// Bindings of the aggregation kernels.
#include "base/arrays.hpp"
#include "loading/aggregate.hpp"

namespace outcore {
namespace {

template <class Id>
void bind_ids(nb::module_& m) {
    m.def("count_by_piece", &count_by_piece<Id>, "sources"_a.noconvert(), "num_nodes"_a, "piece_rows"_a,
          "counts"_a.noconvert(), released());
    m.def(
        "place_by_piece",
        [](std::span<const Id> sources, Ids indptr, i64 first_edge, u64 piece_rows, std::span<i64> next,
           std::span<u64> edges) {
            return place_by_piece(sources, indptr, first_edge, piece_rows, next,
                                  {reinterpret_cast<PieceEdge*>(edges.data()), edges.size()});
        },
        "sources"_a.noconvert(), "indptr"_a.noconvert(), "first_edge"_a, "piece_rows"_a, "next"_a.noconvert(),
        "edges"_a.noconvert(), released());
    m.def("count_loops", &count_loops<Id>, "sources"_a.noconvert(), "indptr"_a.noconvert(), "first_target"_a,
          "first_edge"_a, "loops"_a.noconvert(), released());
}

}  // namespace

void bind_aggregate(nb::module_& m) {
    bind_ids<i32>(m);
    bind_ids<i64>(m);
    m.def(
        "add_rows",
        [](std::span<const u64> edges, std::span<const float> rows, std::span<float> sums, u64 dim,
           std::span<const float> weights, u64 first_row, u64 first_target, bool skip_loops, unsigned threads) {
            if (!weights.empty() && weights.size() * dim < rows.size()) throw std::out_of_range("too few weights");
            return add_rows({reinterpret_cast<const PieceEdge*>(edges.data()), edges.size()},
                            {rows, sums, dim, weights, first_row, first_target, skip_loops}, threads);
        },
        "edges"_a.noconvert(), "rows"_a.noconvert(), "sums"_a.noconvert(), "dim"_a, "weights"_a.noconvert(),
        "first_row"_a, "first_target"_a, "skip_loops"_a, "threads"_a, released());
}

}  // namespace outcore
