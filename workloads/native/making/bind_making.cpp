// Bindings of the generate part of workloads._native: numpy arrays in and out, the GIL released around every loop.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <memory>
#include <span>
#include <stdexcept>

#include "base/arrays.hpp"
#include "making/features.hpp"
#include "making/fractal.hpp"
#include "making/graph_measures.hpp"
#include "making/kronecker.hpp"
#include "making/rmat.hpp"

namespace nb = nanobind;

namespace outcore {
namespace {

// Native code reads a base graph without checks, so it is checked once, here.
void check_graph(std::span<const i64> indptr, std::span<const i32> indices, i64 sources) {
    if (indptr.empty() || indptr.front() != 0 || indptr.back() != static_cast<i64>(indices.size())) {
        throw std::invalid_argument("indptr does not fit indices");
    }
    for (size_t u = 0; u + 1 < indptr.size(); ++u) {
        if (indptr[u] > indptr[u + 1]) throw std::invalid_argument("indptr decreases");
    }
    for (const i32 v : indices) {
        if (v < 0 || v >= sources) throw std::invalid_argument("a neighbour id is out of range");
    }
}

// Holds the base and seed graphs.
using KroneckerStream = Holding<Kronecker, In<i64>, In<i32>, In<i64>, In<i32>>;

// A fractal expansion and the workspace of its columns, for one caller at a time.
struct Expansion {
    Fractal fractal;
    FractalWorkspace space;

    Expansion(Ids indptr, std::span<const i32> indices, std::span<const double> keep, u64 seed)
        : fractal(indptr, indices, keep, seed) {}
};
// Holds the base graph.
using FractalStream = Holding<Expansion, In<i64>, In<i32>>;

i64 nodes_of(Ids indptr) { return static_cast<i64>(indptr.size()) - 1; }

template <typename Index>
i64 make_columns(FractalStream& self, i64 first, std::span<i64> degrees, int threads) {
    return self.fractal.make<Index>(first, degrees, self.space, threads);
}

template <typename Index>
void take_columns(FractalStream& self, std::span<Index> out, int threads) {
    Fractal::take(self.space, out, threads);
}

template <typename Index>
void bind_index(nb::module_& m, nb::class_<KroneckerStream>& kronecker, nb::class_<Rmat>& rmat) {
    kronecker.def(
        "edges",
        [](const KroneckerStream& self, i64 start, std::span<Index> out, int threads) {
            self.edges(start, out, threads);
        },
        "start"_a, "out"_a.noconvert(), "threads"_a, released());
    rmat.def(
        "fill",
        [](const Rmat& self, Ids indptr, i64 first, i64 last, std::span<Index> out, std::span<u32> used, int threads) {
            self.fill(indptr, first, last, out, used, threads);
        },
        "indptr"_a, "first"_a, "last"_a, "out"_a.noconvert(), "used"_a.noconvert(), "threads"_a, released());
    m.def(
        "clustering",
        [](Ids indptr, std::span<const Index> indices, Ids nodes, int pairs, bool sorted, u64 seed, int threads) {
            return clustering(Graph<Index>{indptr, indices}, nodes, pairs, sorted, seed, threads);
        },
        "indptr"_a, "indices"_a.noconvert(), "nodes"_a, "pairs"_a, "sorted"_a, "seed"_a, "threads"_a, released());
    m.def(
        "homophily",
        [](Ids indptr, std::span<const Index> indices, Ids labels, Ids nodes, int threads) {
            const Homophily found = homophily(Graph<Index>{indptr, indices}, labels, nodes, threads);
            return std::pair(found.same, found.edges);
        },
        "indptr"_a, "indices"_a.noconvert(), "labels"_a, "nodes"_a, "threads"_a, released());
    m.def(
        "count_sources",
        [](std::span<const Index> indices, std::span<i64> counts, int threads) {
            count_sources(indices, counts, threads);
        },
        "indices"_a.noconvert(), "counts"_a.noconvert(), "threads"_a, released());
    m.def(
        "sort_lists", [](Ids indptr, std::span<Index> indices, int threads) { sort_lists(indptr, indices, threads); },
        "indptr"_a, "indices"_a.noconvert(), "threads"_a, released());
    m.def(
        "communities",
        [](Ids indptr, std::span<const Index> indices, i32 number, int sweeps, u64 seed, std::span<i64> out) {
            communities(Graph<Index>{indptr, indices}, number, sweeps, seed, out);
        },
        "indptr"_a, "indices"_a.noconvert(), "number"_a, "sweeps"_a, "seed"_a, "out"_a.noconvert(), released());
}

template <typename Element>
void bind_features(nb::module_& m, const char* name) {
    m.def(
        name,
        [](RowsOf<const float> centres, Ids group, Ids ids, u64 seed, float noise, int threads, RowsOf<Element> out) {
            if (out.num_rows != ids.size() || out.row_bytes != centres.row_bytes)
                throw std::invalid_argument("out does not fit ids and centres");
            feature_rows({centres.data, centres.num_rows * centres.row_bytes}, group, ids,
                         static_cast<i64>(centres.row_bytes), seed, noise, threads, out.data);
        },
        "centres"_a, "group"_a, "ids"_a, "seed"_a, "noise"_a, "threads"_a, "out"_a.noconvert(), released());
}

}  // namespace
}  // namespace outcore

void bind_making(nb::module_& m) {
    using namespace outcore;

    nb::class_<KroneckerStream> kronecker(m, "KroneckerStream");
    kronecker
        .def(
            "__init__",
            [](KroneckerStream* self, const In<i64>& base_indptr, const In<i32>& base_indices,
               const In<i64>& seed_indptr, const In<i32>& seed_indices, i64 num_nodes) {
                check_graph(span_of(base_indptr), span_of(base_indices), nodes_of(span_of(base_indptr)));
                check_graph(span_of(seed_indptr), span_of(seed_indices), nodes_of(span_of(seed_indptr)));
                new (self)
                    KroneckerStream({base_indptr, base_indices, seed_indptr, seed_indices}, span_of(base_indptr),
                                    span_of(base_indices), span_of(seed_indptr), span_of(seed_indices), num_nodes);
            },
            "base_indptr"_a, "base_indices"_a, "seed_indptr"_a, "seed_indices"_a, "num_nodes"_a)
        .def_prop_ro("num_nodes", &KroneckerStream::num_nodes)
        .def_prop_ro("num_edges", &KroneckerStream::num_edges)
        .def(
            "indptr",
            [](const KroneckerStream& self, i64 start, std::span<i64> out, int threads) {
                self.indptr(start, out, threads);
            },
            "start"_a, "out"_a.noconvert(), "threads"_a, released());

    nb::class_<Rmat> rmat(m, "Rmat");
    rmat.def(nb::init<i64, i64, u64, bool, u32>(), "num_nodes"_a, "num_edges"_a, "seed"_a, "permute"_a, "communities"_a)
        .def(
            "count", [](const Rmat& self, std::span<i64> indptr, int threads) { self.count(indptr, threads); },
            "indptr"_a.noconvert(), "threads"_a, released())
        .def(
            "labels", [](const Rmat& self, i64 first, std::span<i64> out) { self.labels(first, out); }, "first"_a,
            "out"_a.noconvert(), released());

    nb::class_<FractalStream>(m, "FractalStream")
        .def(
            "__init__",
            [](FractalStream* self, const In<i64>& base_indptr, const In<i32>& base_indices,
               std::span<const double> keep, u64 seed) {
                check_graph(span_of(base_indptr), span_of(base_indices), nodes_of(span_of(base_indptr)));
                new (self)
                    FractalStream({base_indptr, base_indices}, span_of(base_indptr), span_of(base_indices), keep, seed);
            },
            "base_indptr"_a, "base_indices"_a, "keep"_a, "seed"_a)
        .def_prop_ro("num_nodes", [](const FractalStream& self) { return self.fractal.num_nodes(); })
        .def(
            "count_edges", [](const FractalStream& self, int threads) { return self.fractal.count_edges(threads); },
            "threads"_a, released())
        .def("make32", &make_columns<i32>, "first"_a, "degrees"_a, "threads"_a, released())
        .def("make64", &make_columns<i64>, "first"_a, "degrees"_a, "threads"_a, released())
        .def("take", &take_columns<i32>, "out"_a, "threads"_a, released())
        .def("take", &take_columns<i64>, "out"_a, "threads"_a, released());

    bind_index<i32>(m, kronecker, rmat);
    bind_index<i64>(m, kronecker, rmat);
    bind_features<float>(m, "feature_rows32");
    bind_features<u16>(m, "feature_rows16");
    m.def(
        "random_labels",
        [](i64 first, u32 num_classes, u64 seed, std::span<i64> out) {
            if (num_classes < 1) throw std::invalid_argument("num_classes must be at least 1");
            random_labels(first, num_classes, seed, out);
        },
        "first"_a, "num_classes"_a, "seed"_a, "out"_a.noconvert(), released());
    m.def(
        "permute",
        [](u64 n, u64 seed, u32 name0, u32 name1, bool inverse, std::span<i64> ids) {
            const Permutation permutation(n, seed, name0, name1);
            for (i64& id : ids) {
                if (id < 0 || static_cast<u64>(id) >= n) throw std::out_of_range("an id is outside [0, n)");
                const auto x = static_cast<u64>(id);
                id = static_cast<i64>(inverse ? permutation.inverse(x) : permutation.forward(x));
            }
        },
        "n"_a, "seed"_a, "name0"_a, "name1"_a, "inverse"_a, "ids"_a.noconvert(), released());
}
