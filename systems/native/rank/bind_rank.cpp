// Bindings of the rankings and of partitioning.
#include <nanobind/stl/vector.h>

#include "base/arrays.hpp"
#include "rank/partition.hpp"
#include "rank/ranking_bins.hpp"

OUTCORE_TUPLE(Accesses, 2)

namespace outcore {
namespace {

// Adds the occurrences of each id to counts[id]; false for an id outside `counts`, after some other ids were counted.
template <class Id, class Count>
bool count_ids(std::span<const Id> ids, std::span<Count> counts) {
    using Unsigned = std::make_unsigned_t<Id>;
    constexpr size_t block = 4096;  // ids; checked on their way into the first-level cache
    for (size_t begin = 0; begin < ids.size(); begin += block) {
        const auto part = ids.subspan(begin, std::min(block, ids.size() - begin));
        Unsigned top = 0;
        for (const Id id : part) top = std::max(top, static_cast<Unsigned>(id));
        if (top >= counts.size()) return false;
        for (const Id id : part) ++counts[static_cast<size_t>(id)];
    }
    return true;
}

template <class Id>
void bind_ids(nb::module_& m, nb::class_<BinnedEdges>& binned) {
    m.def("count_ids", &count_ids<Id, i32>, "ids"_a.noconvert(), "counts"_a, released());
    m.def("count_ids", &count_ids<Id, i64>, "ids"_a.noconvert(), "counts"_a, released());
    binned.def("append", &BinnedEdges::append<Id>, "sources"_a.noconvert(), "indptr"_a.noconvert(), "first_target"_a,
               "first_edge"_a, "threads"_a, released());
    m.def("partition_greedily", &partition_greedily<Id>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
          "train"_a.noconvert(), "hops"_a, "given"_a.noconvert(), "members"_a, "threads"_a, released());
    m.def("count_accesses", &count_accesses<Id>, "indptr"_a.noconvert(), "indices"_a.noconvert(), "train"_a.noconvert(),
          "partition_of"_a.noconvert(), "hops"_a, "members"_a, "threads"_a, released());
}

}  // namespace

void bind_rank(nb::module_& m) {
    nb::class_<BinnedEdges> binned(m, "BinnedEdges", "Edges sorted into bins, target after target, for `add_along`.");
    binned.def(nb::init<u64, u64>(), "num_nodes"_a, "capacity"_a)
        .def_prop_ro("size", &BinnedEdges::size)
        .def_prop_ro("capacity", &BinnedEdges::capacity)
        .def("clear", &BinnedEdges::clear)
        .def_static("plan_bytes", &BinnedEdges::plan_bytes, "num_nodes"_a, "edges"_a, "targets"_a, "appends"_a);
    bind_ids<i32>(m, binned);
    bind_ids<i64>(m, binned);
    m.def("binned_entries", [](u64 num_nodes) { return Binning(num_nodes).entries(); }, "num_nodes"_a);
    m.def(
        "add_along",
        [](const std::vector<nb::object>& chunks, std::span<const double> values, std::span<double> sums,
           unsigned threads) {
            std::vector<const BinnedEdges*> edges;  // `chunks` keeps them alive even if the caller's sequence changes
            edges.reserve(chunks.size());
            for (const nb::object& chunk : chunks) edges.push_back(&nb::cast<const BinnedEdges&>(chunk));
            unlocked([&] { add_along(edges, values, sums, threads); });
        },
        "chunks"_a, "values"_a.noconvert(), "sums"_a, "threads"_a,
        nb::sig(
            "def add_along(chunks: collections.abc.Sequence[BinnedEdges], values: numpy.typing.NDArray[numpy.float64], "
            "sums: numpy.typing.NDArray[numpy.float64], threads: int) -> None"));
    m.def("pagerank_step", &pagerank_step, "scores"_a, "sums"_a, "before"_a.noconvert(), "base"_a, "damping"_a,
          "threads"_a, released());
    m.def("divide_by_degrees", &divide_by_degrees, "scores"_a, "indptr"_a.noconvert(), "threads"_a, released());
}

}  // namespace outcore
