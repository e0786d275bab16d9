// Bindings of the sampling part of workloads._native.

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>

#include "base/arrays.hpp"
#include "base/draws.hpp"
#include "base/xxh3.hpp"
#include "sampling/sampler.hpp"

namespace outcore {
namespace {

// Holds the arrays that a sampler reads, whose types depend on the width of the ids.
struct BoundSampler {
    nb::object arrays;
    std::unique_ptr<NeighborSampler> sampler;  // destroyed before the arrays
};

template <class Index>
void construct(BoundSampler* self, In<i64> indptr, In<Index> indices, std::vector<i64> fanout, u64 seed, bool replace,
               int threads, bool wide_keys, std::optional<In<i64>> address, std::optional<In<Index>> lists,
               std::optional<In<i64>> names, const std::string& kind) {
    if (indptr.size() < 1) throw std::invalid_argument("indptr is empty");
    if (threads < 1) throw std::invalid_argument("threads must be at least 1");
    SamplerOptions options{std::move(fanout), seed, replace, threads, wide_keys};
    if (address.has_value() != lists.has_value()) throw std::invalid_argument("addresses and lists belong together");
    nb::object arrays = nb::make_tuple(indptr, indices, address, lists, names);
    Topology<Index> graph{span_of(indptr), span_of(indices), {}, {}, {}};
    if (address) graph.address = span_of(*address), graph.lists = span_of(*lists);
    if (names) graph.names = span_of(*names);
    new (self) BoundSampler{std::move(arrays), kind == "neighbor"
                                                   ? make_neighbor_sampler<Index>(graph, std::move(options))
                                                   : make_subgraph_sampler<Index>(kind, graph, std::move(options))};
}

nb::tuple sample(BoundSampler& self, u64 epoch, u64 batch, Ids seeds) {
    Sample drawn = unlocked([&] { return self.sampler->sample(epoch, batch, seeds); });
    nb::list blocks;
    for (auto hop = drawn.hops.rbegin(); hop != drawn.hops.rend(); ++hop)
        blocks.append(nb::make_tuple(to_numpy(std::move(hop->indptr)), to_numpy(std::move(hop->indices)), hop->num_src,
                                     hop->num_dst));
    return nb::make_tuple(to_numpy(std::move(drawn.nodes)), blocks, drawn.edge_reads, drawn.list_reads, drawn.list_hits,
                          to_numpy(std::move(drawn.local)));
}

Numpy<u64> draw_positions(u64 degree, i64 fanout, bool replace, u64 seed, u64 epoch, u64 batch, u32 hop, u64 node) {
    const u64 count = PositionDrawer::count(degree, fanout, replace);
    Buffer<u64> positions(count);
    if (count == degree && (!replace || fanout < 0)) {
        for (u64 i = 0; i < count; ++i) positions[i] = i;
    } else {
        PhiloxStream stream(Philox4x32(seed), stream_name(epoch, batch, hop, node));
        PositionDrawer().draw(stream, degree, count, replace, positions.data.get());
    }
    return to_numpy(std::move(positions));
}

// Draws as the sampler does, side by side where the lanes allow it: a row for each node, all lists of equal length.
Numpy<u64, 2> draw_positions_of(Ids nodes, u64 degree, u64 fanout, bool replace, u64 seed) {
    if (degree == 0 || (!replace && degree <= fanout)) throw std::invalid_argument("such a list is taken whole");
    if (fanout > (u64{1} << 60) / std::max<size_t>(nodes.size(), 1)) throw std::bad_alloc();
    Buffer<u64> positions(nodes.size() * fanout);
    LaneDrawer drawer;
    std::vector<DrawnList> lists;
    for (size_t i = 0; i < nodes.size(); ++i) {
        lists.push_back({static_cast<u64>(nodes[i]), 0, degree, i * fanout});
        if (lists.size() < kDrawLanes && i + 1 < nodes.size()) continue;
        drawer.draw(lists, {seed, 0, 0, 0}, fanout, replace, positions.data.get());
        lists.clear();
    }
    return to_numpy<u64, 2>(std::move(positions), {nodes.size(), static_cast<size_t>(fanout)});
}

i64 count_below(Ids values, i64 bound) {
    return std::count_if(values.begin(), values.end(), [bound](i64 value) { return value < bound; });
}

// The CSR of a block in 32 bits, with a single self-loop as the last edge of each destination.
nb::typed<nb::tuple, Numpy<i32>, Numpy<i32>> with_self_loops(Ids indptr, std::span<const i32> indices) {
    if (indptr.empty()) throw std::invalid_argument("indptr is empty");
    const size_t destinations = indptr.size() - 1;
    Buffer<i32> starts(destinations + 1), edges(indices.size() + destinations);
    const size_t size = unlocked([&] {
        size_t at = 0;
        for (size_t own = 0; own < destinations; ++own) {
            starts[own] = static_cast<i32>(at);
            if (indptr[own] < 0 || indptr[own] > indptr[own + 1] || indptr[own + 1] > static_cast<i64>(indices.size()))
                throw std::invalid_argument("indptr does not describe these edges");
            for (i64 edge = indptr[own]; edge < indptr[own + 1]; ++edge) {
                edges[at] = indices[edge];
                at += indices[edge] != static_cast<i32>(own);
            }
            edges[at++] = static_cast<i32>(own);
        }
        starts[destinations] = static_cast<i32>(at);
        return at;
    });
    edges.size = size;
    return nb::make_tuple(to_numpy(std::move(starts)), to_numpy(std::move(edges)));
}

// Streams integers into XXH3-64 in little-endian order, as they lie in memory.
void add_words(Xxh3Stream& digest, std::initializer_list<i64> words) {
    digest.update(std::as_bytes(std::span(words)).data(), words.size() * sizeof(i64));
}
template <class T>
void add_array(Xxh3Stream& digest, const In<T>& array) {
    digest.update(reinterpret_cast<const std::byte*>(array.data()), array.nbytes());
}

// Bytes of a mini-batch from which its digest releases the GIL: for smaller mini-batches, taking the GIL back would
// take longer than the hash.
constexpr size_t kReleaseBytes = 1 << 20;

struct BlockArrays {
    In<i64> indptr;
    In<i32> indices;
    i64 num_src, num_dst;
};

// XXH3-64 of a mini-batch's structure.
u64 structure_digest(i64 epoch, i64 batch, i64 num_seeds, const In<i64>& nodes,
                     const nb::typed<nb::tuple, nb::object, nb::ellipsis>& blocks, const In<i64>& labels) {
    std::vector<BlockArrays> hops;
    size_t bytes = nodes.nbytes();
    for (const nb::handle block : blocks) {
        BlockArrays& hop = hops.emplace_back(In<i64>(), In<i32>(), nb::cast<i64>(block.attr("num_src")),
                                             nb::cast<i64>(block.attr("num_dst")));
        if (!nb::try_cast(block.attr("indptr"), hop.indptr) || !nb::try_cast(block.attr("indices"), hop.indices))
            throw nb::type_error("a block's indptr is not int64 [num_dst + 1], or its indices are not int32 [n]");
        bytes += hop.indptr.nbytes() + hop.indices.nbytes();
    }
    const auto hash = [&, count = static_cast<i64>(hops.size())] {
        Xxh3Stream digest;
        add_words(digest, {epoch, batch, num_seeds, static_cast<i64>(nodes.size()), count});
        add_array(digest, nodes);
        for (const BlockArrays& hop : hops) {
            add_words(digest, {hop.num_src, hop.num_dst, static_cast<i64>(hop.indices.size())});
            add_array(digest, hop.indptr);
            add_array(digest, hop.indices);
        }
        add_words(digest, {static_cast<i64>(labels.size())});
        add_array(digest, labels);
        return digest.value();
    };
    return bytes < kReleaseBytes ? hash() : unlocked(hash);
}

// The order of an epoch's training nodes: a Philox-keyed Fisher-Yates shuffle, fixed for all versions. Its stream is
// (epoch, batch 0, hop 63, node 0) in draws.hpp.
void shuffle(std::span<i64> values, u64 seed, u64 epoch) {
    PhiloxStream stream(Philox4x32(seed), stream_name(epoch, 0, kSeedPlanHop, 0));
    for (size_t last = values.size(); last > 1; --last) std::swap(values[last - 1], values[stream.below64(last)]);
}

template <class Index>
void bind_index(nb::class_<BoundSampler>& sampler) {
    sampler.def("__init__", &construct<Index>, "indptr"_a, "indices"_a.noconvert(), "fanout"_a, "seed"_a,
                "replace"_a = false, "threads"_a = 1, "wide_keys"_a = false, "address"_a.noconvert() = nb::none(),
                "lists"_a.noconvert() = nb::none(), "names"_a.noconvert() = nb::none(), "kind"_a = "neighbor");
}

}  // namespace

void bind_sampling(nb::module_& m) {
    m.attr("MAX_NODE") = kMaxNode;
    m.attr("MAX_EPOCH") = kMaxEpoch;
    m.attr("MAX_BATCH") = kMaxBatch;
    m.attr("MAX_HOPS") = kSeedPlanHop;

    nb::class_<BoundSampler> sampler(m, "NeighborSampler");
    bind_index<i32>(sampler);
    bind_index<i64>(sampler);
    sampler
        .def(
            "sample", &sample, "epoch"_a, "batch"_a, "seeds"_a,
            nb::sig("def sample(self, epoch: int, batch: int, seeds: numpy.typing.NDArray[numpy.int64]) -> "
                    "tuple[numpy.typing.NDArray[numpy.int64], list[tuple[numpy.typing.NDArray[numpy.int64], "
                    "numpy.typing.NDArray[numpy.int32], int, int]], int, int, int, numpy.typing.NDArray[numpy.int64]]"),
            "(nodes int64, [(indptr int64, indices int32, num_src, num_dst)] input layer first, edge_reads, "
            "list_reads, list_hits, local int64)")
        .def("scratch_bytes", [](BoundSampler& self) { return self.sampler->scratch_bytes(); });

    m.def("draw_positions", &draw_positions, "degree"_a, "fanout"_a, "replace"_a, "seed"_a, "epoch"_a = 0,
          "batch"_a = 0, "hop"_a = 0, "node"_a = 0,
          "The positions that the sampler keeps of one neighbour list, ascending.");
    m.def("draw_positions_of", &draw_positions_of, "nodes"_a, "degree"_a, "fanout"_a, "replace"_a, "seed"_a,
          "The same for many nodes whose lists are equally long, [len(nodes), fanout], drawn side by side.");
    m.def(
        "philox4x32",
        [](u64 seed, const std::vector<u32>& counter) {
            if (counter.size() != 4) throw std::invalid_argument("a counter has four words");
            const auto words = Philox4x32(seed)({counter[0], counter[1], counter[2], counter[3]});
            nb::typed<nb::list, int> result;
            for (const u32 word : words) result.append(word);
            return result;
        },
        "seed"_a, "counter"_a, "Philox4x32-10 at one counter.");
    m.def("structure_digest", &structure_digest, "epoch"_a, "batch"_a, "num_seeds"_a, "nodes"_a, "blocks"_a, "labels"_a,
          "XXH3-64 of a mini-batch's structure; blocks have indptr, indices, num_src and num_dst.");
    m.def("count_below", &count_below, "values"_a, "bound"_a, "Number of values below the bound.");
    m.def(
        "with_self_loops", &with_self_loops, "indptr"_a, "indices"_a,
        "(indptr int32, indices int32) of a block in which each destination's last edge is its only one from itself.");
    m.def("shuffle", &shuffle, "values"_a, "seed"_a, "epoch"_a, released(),
          "Shuffles in place, a function of (seed, epoch, size).");
}

}  // namespace outcore
