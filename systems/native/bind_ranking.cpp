// Python bindings of the ranking kernels.
#include <nanobind/stl/vector.h>

#include "bind.hpp"
#include "ranking.hpp"
#include "ranking_bins.hpp"

namespace outcore {
namespace {

template <class Id, class Count>
void bind_count(nb::module_& m) {
    m.def(
        "count_ids",
        [](const In<Id>& ids, const Out<Count>& counts) {
            const nb::gil_scoped_release release;
            return count_ids(span_of(ids), span_of(counts));
        },
        nb::arg("ids").noconvert(), nb::arg("counts").noconvert());
}

template <class Id>
void bind_append(nb::class_<BinnedEdges>& binned) {
    binned.def(
        "append",
        [](BinnedEdges& self, const In<Id>& sources, const In<std::int64_t>& indptr, std::int64_t first_target,
           std::int64_t first_edge, unsigned threads) {
            const nb::gil_scoped_release release;
            return self.append(span_of(sources), span_of(indptr), first_target, first_edge, threads);
        },
        nb::arg("sources").noconvert(), nb::arg("indptr").noconvert(), nb::arg("first_target"), nb::arg("first_edge"),
        nb::arg("threads"));
}

}  // namespace

void bind_ranking(nb::module_& m) {
    bind_count<std::int32_t, std::int32_t>(m);
    bind_count<std::int32_t, std::int64_t>(m);
    bind_count<std::int64_t, std::int32_t>(m);
    bind_count<std::int64_t, std::int64_t>(m);

    nb::class_<BinnedEdges> binned(m, "BinnedEdges");
    binned.def(nb::init<std::uint64_t, std::uint64_t>(), nb::arg("num_nodes"), nb::arg("capacity"));
    binned.def_prop_ro("size", &BinnedEdges::size);
    binned.def_prop_ro("capacity", &BinnedEdges::capacity);
    binned.def("clear", &BinnedEdges::clear);
    binned.def_static("plan_bytes", &BinnedEdges::plan_bytes, nb::arg("num_nodes"), nb::arg("edges"), nb::arg("targets"),
                      nb::arg("appends"));
    bind_append<std::int32_t>(binned);
    bind_append<std::int64_t>(binned);
    m.def(
        "binned_entries", [](std::uint64_t num_nodes) { return Binning(num_nodes).entries(); }, nb::arg("num_nodes"));
    m.def(
        "add_along",
        [](const std::vector<nb::object>& chunks, const In<double>& values, const Out<double>& sums, unsigned threads) {
            std::vector<const BinnedEdges*> edges;  // `chunks` keeps them alive even if the caller's sequence changes
            for (const nb::object& chunk : chunks) edges.push_back(&nb::cast<const BinnedEdges&>(chunk));
            if (sums.size() < Binning(values.size()).entries()) throw std::out_of_range("sums has too few entries");
            const nb::gil_scoped_release release;
            add_along(edges, span_of(values), span_of(sums), threads);
        },
        nb::arg("chunks"), nb::arg("values").noconvert(), nb::arg("sums").noconvert(), nb::arg("threads"));
    m.def(
        "pagerank_step",
        [](const Out<double>& scores, const Out<double>& sums, const In<double>& before, double base, double damping,
           unsigned threads) {
            if (sums.size() < Binning(scores.size()).entries()) throw std::out_of_range("sums has too few entries");
            if (before.size() != 0 && before.size() != scores.size()) throw std::out_of_range("before has another size");
            const nb::gil_scoped_release release;
            return pagerank_step(span_of(scores), span_of(sums), span_of(before), base, damping, threads);
        },
        nb::arg("scores").noconvert(), nb::arg("sums").noconvert(), nb::arg("before").noconvert(), nb::arg("base"),
        nb::arg("damping"), nb::arg("threads"));
    m.def(
        "divide_by_degrees",
        [](const Out<double>& scores, const In<std::int64_t>& indptr, unsigned threads) {
            if (indptr.size() != scores.size() + 1) throw std::out_of_range("indptr has another size");
            const nb::gil_scoped_release release;
            return divide_by_degrees(span_of(scores), span_of(indptr), threads);
        },
        nb::arg("scores").noconvert(), nb::arg("indptr").noconvert(), nb::arg("threads"));
}

}  // namespace outcore
