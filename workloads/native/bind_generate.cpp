// Bindings of the generate part of workloads._native: numpy arrays in and out, the GIL released around every loop.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <memory>
#include <span>
#include <stdexcept>

#include "arrays.hpp"
#include "features.hpp"
#include "fractal.hpp"
#include "graph_measures.hpp"
#include "kronecker.hpp"
#include "rmat.hpp"

namespace nb = nanobind;

namespace outcore {
namespace {

using In64 = In<std::int64_t>;

// Native code reads a base graph without checks, so it is checked once, here.
void check_graph(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices, std::int64_t sources) {
    if (indptr.empty() || indptr.front() != 0 || indptr.back() != static_cast<std::int64_t>(indices.size())) {
        throw std::invalid_argument("indptr does not fit indices");
    }
    for (std::size_t u = 0; u + 1 < indptr.size(); ++u) {
        if (indptr[u] > indptr[u + 1]) throw std::invalid_argument("indptr decreases");
    }
    for (const std::int32_t v : indices) {
        if (v < 0 || v >= sources) throw std::invalid_argument("a neighbour id is out of range");
    }
}

// Holds the base and seed graphs.
using KroneckerStream = Holding<Kronecker, In64, In<std::int32_t>, In64, In<std::int32_t>>;

// A fractal expansion and the workspace of its columns, for one caller at a time.
struct Expansion {
    Fractal fractal;
    FractalWorkspace space;
};
// Holds the base graph.
using FractalStream = Holding<Expansion, In64, In<std::int32_t>>;

std::int64_t nodes_of(const In64& indptr) { return static_cast<std::int64_t>(indptr.size()) - 1; }

template <typename Index>
std::int64_t make_columns(FractalStream& self, std::int64_t first, const Out<std::int64_t>& degrees, int threads) {
    return self->fractal.make<Index>(first, span_of(degrees), self->space, threads);
}

template <typename Index>
void take_columns(FractalStream& self, const Out<Index>& out, int threads) {
    Fractal::take(self->space, span_of(out), threads);
}

template <typename Index>
void bind_index(nb::module_& m, nb::class_<KroneckerStream>& kronecker, nb::class_<Rmat>& rmat) {
    using namespace nb::literals;
    const auto released = nb::call_guard<nb::gil_scoped_release>();
    kronecker.def(
        "edges",
        [](const KroneckerStream& self, std::int64_t start, Out<Index> out, int threads) {
            self->edges(start, span_of(out), threads);
        },
        "start"_a, "out"_a.noconvert(), "threads"_a, released);
    rmat.def(
        "fill",
        [](const Rmat& self, In64 indptr, std::int64_t first, std::int64_t last, Out<Index> out,
           Out<std::uint32_t> used, int threads) {
            self.fill(span_of(indptr), first, last, span_of(out), span_of(used), threads);
        },
        "indptr"_a, "first"_a, "last"_a, "out"_a.noconvert(), "used"_a.noconvert(), "threads"_a, released);
    m.def(
        "clustering",
        [](In64 indptr, In<Index> indices, In64 nodes, int pairs, bool sorted, std::uint64_t seed, int threads) {
            return clustering(Graph<Index>{span_of(indptr), span_of(indices)}, span_of(nodes), pairs, sorted, seed, threads);
        },
        "indptr"_a, "indices"_a.noconvert(), "nodes"_a, "pairs"_a, "sorted"_a, "seed"_a, "threads"_a, released);
    m.def(
        "homophily",
        [](In64 indptr, In<Index> indices, In64 labels, In64 nodes, int threads) {
            const Homophily found = homophily(Graph<Index>{span_of(indptr), span_of(indices)}, span_of(labels), span_of(nodes), threads);
            return std::pair(found.same, found.edges);
        },
        "indptr"_a, "indices"_a.noconvert(), "labels"_a, "nodes"_a, "threads"_a, released);
    m.def(
        "count_sources",
        [](In<Index> indices, Out<std::int64_t> counts, int threads) {
            count_sources(span_of(indices), span_of(counts), threads);
        },
        "indices"_a.noconvert(), "counts"_a.noconvert(), "threads"_a, released);
    m.def(
        "sort_lists",
        [](In64 indptr, Out<Index> indices, int threads) { sort_lists(span_of(indptr), span_of(indices), threads); },
        "indptr"_a, "indices"_a.noconvert(), "threads"_a, released);
    m.def(
        "communities",
        [](In64 indptr, In<Index> indices, std::int32_t number, int sweeps, std::uint64_t seed,
           Out<std::int64_t> out) {
            communities(Graph<Index>{span_of(indptr), span_of(indices)}, number, sweeps, seed, span_of(out));
        },
        "indptr"_a, "indices"_a.noconvert(), "number"_a, "sweeps"_a, "seed"_a, "out"_a.noconvert(), released);
}

template <typename Element>
void bind_features(nb::module_& m, const char* name) {
    using namespace nb::literals;
    m.def(
        name,
        [](nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu> centres, In64 group, In64 ids,
           std::uint64_t seed, float noise, int threads,
           Written<Element, nb::ndim<2>, nb::c_contig, nb::device::cpu> out) {
            const auto dim = static_cast<std::int64_t>(centres.shape(1));
            if (out.shape(0) != ids.size() || out.shape(1) != centres.shape(1)) {
                throw std::invalid_argument("out does not fit ids and centres");
            }
            feature_rows({centres.data(), centres.size()}, span_of(group), span_of(ids), dim, seed, noise, threads,
                         out.data());
        },
        "centres"_a, "group"_a, "ids"_a, "seed"_a, "noise"_a, "threads"_a, "out"_a.noconvert(),
        nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace
}  // namespace outcore

void bind_generate(nb::module_& m) {
    using namespace outcore;
    using namespace nb::literals;
    const auto released = nb::call_guard<nb::gil_scoped_release>();

    nb::class_<KroneckerStream> kronecker(m, "KroneckerStream");
    kronecker
        .def(
            "__init__",
            [](KroneckerStream* self, const In64& base_indptr, const In<std::int32_t>& base_indices,
               const In64& seed_indptr, const In<std::int32_t>& seed_indices, std::int64_t num_nodes) {
                check_graph(span_of(base_indptr), span_of(base_indices), nodes_of(base_indptr));
                check_graph(span_of(seed_indptr), span_of(seed_indices), nodes_of(seed_indptr));
                const auto make = [&] {
                    return Kronecker(span_of(base_indptr), span_of(base_indices), span_of(seed_indptr), span_of(seed_indices), num_nodes);
                };
                new (self) KroneckerStream(make, base_indptr, base_indices, seed_indptr, seed_indices);
            },
            "base_indptr"_a, "base_indices"_a, "seed_indptr"_a, "seed_indices"_a, "num_nodes"_a)
        .def_prop_ro("num_nodes", [](const KroneckerStream& self) { return self->num_nodes(); })
        .def_prop_ro("num_edges", [](const KroneckerStream& self) { return self->num_edges(); })
        .def(
            "indptr",
            [](const KroneckerStream& self, std::int64_t start, Out<std::int64_t> out, int threads) {
                self->indptr(start, span_of(out), threads);
            },
            "start"_a, "out"_a.noconvert(), "threads"_a, released);

    nb::class_<Rmat> rmat(m, "Rmat");
    rmat.def(nb::init<std::int64_t, std::int64_t, std::uint64_t, bool, std::uint32_t>(), "num_nodes"_a, "num_edges"_a,
             "seed"_a, "permute"_a, "communities"_a)
        .def(
            "count",
            [](const Rmat& self, Out<std::int64_t> indptr, int threads) { self.count(span_of(indptr), threads); },
            "indptr"_a.noconvert(), "threads"_a, released)
        .def(
            "labels",
            [](const Rmat& self, std::int64_t first, Out<std::int64_t> out) { self.labels(first, span_of(out)); },
            "first"_a, "out"_a.noconvert(), released);

    nb::class_<FractalStream>(m, "FractalStream")
        .def(
            "__init__",
            [](FractalStream* self, const In64& base_indptr, const In<std::int32_t>& base_indices, const In<double>& keep,
               std::uint64_t seed) {
                check_graph(span_of(base_indptr), span_of(base_indices), nodes_of(base_indptr));
                const auto make = [&] {
                    return Expansion{Fractal(span_of(base_indptr), span_of(base_indices), span_of(keep), seed), {}};
                };
                new (self) FractalStream(make, base_indptr, base_indices);
            },
            "base_indptr"_a, "base_indices"_a, "keep"_a, "seed"_a)
        .def_prop_ro("num_nodes", [](const FractalStream& self) { return self->fractal.num_nodes(); })
        .def(
            "count_edges", [](const FractalStream& self, int threads) { return self->fractal.count_edges(threads); },
            "threads"_a, released)
        .def("make32", &make_columns<std::int32_t>, "first"_a, "degrees"_a, "threads"_a, released)
        .def("make64", &make_columns<std::int64_t>, "first"_a, "degrees"_a, "threads"_a, released)
        .def("take", &take_columns<std::int32_t>, "out"_a, "threads"_a, released)
        .def("take", &take_columns<std::int64_t>, "out"_a, "threads"_a, released);

    bind_index<std::int32_t>(m, kronecker, rmat);
    bind_index<std::int64_t>(m, kronecker, rmat);
    bind_features<float>(m, "feature_rows32");
    bind_features<std::uint16_t>(m, "feature_rows16");
    m.def(
        "random_labels",
        [](std::int64_t first, std::uint32_t num_classes, std::uint64_t seed, Out<std::int64_t> out) {
            if (num_classes < 1) throw std::invalid_argument("num_classes must be at least 1");
            random_labels(first, num_classes, seed, span_of(out));
        },
        "first"_a, "num_classes"_a, "seed"_a, "out"_a.noconvert(), released);
    m.def(
        "permute",
        [](std::uint64_t n, std::uint64_t seed, std::uint32_t name0, std::uint32_t name1, bool inverse,
           Out<std::int64_t> ids) {
            const Permutation permutation(n, seed, name0, name1);
            for (std::int64_t& id : span_of(ids)) {
                if (id < 0 || static_cast<std::uint64_t>(id) >= n) throw std::out_of_range("an id is outside [0, n)");
                const auto x = static_cast<std::uint64_t>(id);
                id = static_cast<std::int64_t>(inverse ? permutation.inverse(x) : permutation.forward(x));
            }
        },
        "n"_a, "seed"_a, "name0"_a, "name1"_a, "inverse"_a, "ids"_a.noconvert(), released);
}
