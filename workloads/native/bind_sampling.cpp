// Bindings of the sampling part of workloads._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>

#include "arrays.hpp"
#include "draw_lanes.hpp"
#include "draws.hpp"
#include "sampler.hpp"
#include "shuffle.hpp"
#include "subgraph_samplers.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace outcore;

namespace {

template <class T>
using Output = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T>
Output<T> to_numpy(Buffer<T>&& buffer) {
    const std::size_t size = buffer.size;
    T* data = buffer.data.release();
    nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    return Output<T>(data, {size}, owner);
}

// Holds the arrays that a sampler reads, whose types depend on the width of the ids.
using BoundSampler = Holding<std::unique_ptr<NeighborSampler>, nb::object>;

template <class Index>
void construct(BoundSampler* self, In<std::int64_t> indptr, In<Index> indices, std::vector<std::int64_t> fanout,
               std::uint64_t seed, bool replace, int threads, bool wide_keys,
               std::optional<In<std::int64_t>> address, std::optional<In<Index>> lists,
               std::optional<In<std::int64_t>> names, const std::string& kind) {
    if (indptr.size() < 1) throw std::invalid_argument("indptr is empty");
    if (threads < 1) throw std::invalid_argument("threads must be at least 1");
    SamplerOptions options{std::move(fanout), seed, replace, threads, wide_keys};
    if (address.has_value() != lists.has_value()) throw std::invalid_argument("addresses and lists belong together");
    nb::object arrays = nb::make_tuple(indptr, indices, address, lists, names);
    Topology<Index> graph{span_of(indptr), span_of(indices), {}, {}, {}};
    if (address) graph.address = span_of(*address), graph.lists = span_of(*lists);
    if (names) graph.names = span_of(*names);
    std::unique_ptr<NeighborSampler> sampler;
    if (kind == "neighbor") sampler = make_neighbor_sampler<Index>(graph, std::move(options));
    if (kind == "layerwise") sampler = make_layerwise_sampler<Index>(graph, std::move(options));
    if (kind == "shadow") sampler = make_shadow_sampler<Index>(graph, std::move(options));
    if (!sampler) throw std::invalid_argument("there is no sampler " + kind);
    new (self) BoundSampler([&] { return std::move(sampler); }, std::move(arrays));
}

nb::tuple sample(BoundSampler& self, std::uint64_t epoch, std::uint64_t batch, const In<std::int64_t>& seeds) {
    Sample drawn;
    {
        nb::gil_scoped_release release;
        drawn = (*self)->sample(epoch, batch, span_of(seeds));
    }
    nb::list blocks;
    for (auto hop = drawn.hops.rbegin(); hop != drawn.hops.rend(); ++hop)
        blocks.append(nb::make_tuple(to_numpy(std::move(hop->indptr)), to_numpy(std::move(hop->indices)), hop->num_src,
                                     hop->num_dst));
    return nb::make_tuple(to_numpy(std::move(drawn.nodes)), blocks, drawn.edge_reads, drawn.list_reads,
                          drawn.list_hits, to_numpy(std::move(drawn.local)));
}

Output<std::uint64_t> draw_positions(std::uint64_t degree, std::int64_t fanout, bool replace, std::uint64_t seed,
                                     std::uint64_t epoch, std::uint64_t batch, std::uint32_t hop, std::uint64_t node) {
    const std::uint64_t count = PositionDrawer::count(degree, fanout, replace);
    Buffer<std::uint64_t> positions(count);
    if (count == degree && (!replace || fanout < 0)) {
        for (std::uint64_t i = 0; i < count; ++i) positions[i] = i;
    } else {
        PhiloxStream stream(Philox4x32(seed), stream_name(epoch, batch, hop, node));
        PositionDrawer().draw(stream, degree, count, replace, positions.data.get());
    }
    return to_numpy(std::move(positions));
}

// Draws as the sampler does, side by side where the lanes allow it: one row a node, all lists equally long.
nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<2>> draw_positions_of(const In<std::int64_t>& nodes,
                                                                     std::uint64_t degree, std::uint64_t fanout,
                                                                     bool replace, std::uint64_t seed) {
    if (degree == 0 || (!replace && degree <= fanout)) throw std::invalid_argument("such a list is taken whole");
    if (fanout > (std::uint64_t{1} << 60) / std::max<std::size_t>(nodes.size(), 1)) throw std::bad_alloc();
    Buffer<std::uint64_t> positions(nodes.size() * fanout);
    LaneDrawer drawer;
    std::vector<DrawnList> lists;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        lists.push_back({static_cast<std::uint64_t>(nodes.data()[i]), 0, degree, i * fanout});
        if (lists.size() < kDrawLanes && i + 1 < nodes.size()) continue;
        drawer.draw(lists, {seed, 0, 0, 0}, fanout, replace, positions.data.get());
        lists.clear();
    }
    const std::size_t rows = nodes.size();
    std::uint64_t* data = positions.data.release();
    nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<std::uint64_t*>(memory); });
    return {data, {rows, static_cast<std::size_t>(fanout)}, owner};
}

}  // namespace

void bind_sampling(nb::module_& m) {
    m.attr("MAX_NODE") = kMaxNode;
    m.attr("MAX_EPOCH") = kMaxEpoch;
    m.attr("MAX_BATCH") = kMaxBatch;
    m.attr("MAX_HOPS") = kSeedPlanHop;

    nb::class_<BoundSampler>(m, "NeighborSampler")
        .def("__init__", &construct<std::int32_t>, "indptr"_a, "indices"_a.noconvert(), "fanout"_a, "seed"_a,
             "replace"_a = false, "threads"_a = 1, "wide_keys"_a = false, "address"_a.noconvert() = nb::none(),
             "lists"_a.noconvert() = nb::none(), "names"_a.noconvert() = nb::none(), "kind"_a = "neighbor")
        .def("__init__", &construct<std::int64_t>, "indptr"_a, "indices"_a.noconvert(), "fanout"_a, "seed"_a,
             "replace"_a = false, "threads"_a = 1, "wide_keys"_a = false, "address"_a.noconvert() = nb::none(),
             "lists"_a.noconvert() = nb::none(), "names"_a.noconvert() = nb::none(), "kind"_a = "neighbor")
        .def("sample", &sample, "epoch"_a, "batch"_a, "seeds"_a,
             "(nodes int64, [(indptr int64, indices int32, num_src, num_dst)] input layer first, edge_reads, "
             "list_reads, list_hits, local int64)")
        .def("scratch_bytes", [](BoundSampler& self) { return (*self)->scratch_bytes(); });

    m.def("draw_positions", &draw_positions, "degree"_a, "fanout"_a, "replace"_a, "seed"_a, "epoch"_a = 0,
          "batch"_a = 0, "hop"_a = 0, "node"_a = 0,
          "The positions that the sampler keeps of one neighbour list, ascending.");
    m.def("draw_positions_of", &draw_positions_of, "nodes"_a, "degree"_a, "fanout"_a, "replace"_a, "seed"_a,
          "The same for many nodes whose lists are equally long, [len(nodes), fanout], drawn side by side.");
    m.def(
        "philox4x32",
        [](std::uint64_t seed, std::vector<std::uint32_t> counter) {
            if (counter.size() != 4) throw std::invalid_argument("a counter has four words");
            const auto words = Philox4x32(seed)({counter[0], counter[1], counter[2], counter[3]});
            return std::vector<std::uint32_t>(words.begin(), words.end());
        },
        "seed"_a, "counter"_a, "Philox4x32-10 at one counter.");
    m.def(
        "shuffle",
        [](const Out<std::int64_t>& values, std::uint64_t seed, std::uint64_t epoch) {
            nb::gil_scoped_release release;
            shuffle(span_of(values), seed, epoch);
        },
        "values"_a.noconvert(), "seed"_a, "epoch"_a, "Shuffles in place, a function of (seed, epoch, size).");
}
