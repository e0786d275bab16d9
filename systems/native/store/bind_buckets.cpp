// Graph cut into partitions of nodes and buckets of edges (MariusGNN), with the bindings: bucket (i, j) holds the edges
// from nodes of partition j to nodes of partition i, so that the graph among buffered partitions is read without any
// other edge. A bucket holds source nodes by (destination, position in its neighbour list). The list order, one byte an
// in-edge, gives the bucket of each next edge of a list, so lists are restored exactly without stored destinations.
#include "base/refuse.hpp"
#include "base/team.hpp"
#include "read/bind_counts.hpp"
#include "store/splitmix.hpp"
#include "store/spread.hpp"

namespace outcore {
namespace {

constexpr size_t max_partitions = 256;

// Fills the first partitions of `size` nodes with `first`, in that order, and assigns the other nodes at random: every
// assignment is equally likely, and the seed determines it. Throws std::out_of_range for an invalid or repeated id.
void assign_partitions(Ids first, u64 size, u64 seed, std::span<u8> partition_of) {
    const u64 nodes = partition_of.size();
    if (size == 0 || (nodes + size - 1) / size > max_partitions)
        refuse<std::out_of_range>("more than ", max_partitions, " partitions");
    std::vector<bool> placed(nodes);
    for (size_t i = 0; i < first.size(); ++i) {
        const auto node = static_cast<u64>(first[i]);
        if (node >= nodes || placed[node])
            refuse<std::out_of_range>("node ", first[i], " is not one of ", nodes, ", or stands twice");
        placed[node] = true;
        partition_of[node] = static_cast<u8>(i / size);
    }
    // Shuffles the remaining places among the remaining nodes: Fisher-Yates over those nodes alone.
    std::vector<u8> places(nodes - first.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<u8>((first.size() + i) / size);
    SplitMix random(seed);
    for (size_t left = places.size(), node = 0; left > 0; ++node) {
        if (placed[node]) continue;
        std::swap(places[left - 1], places[random.below(left)]);
        partition_of[node] = places[--left];
    }
}

// Adds the run's edges in bucket (i, j) to counts[i * partitions + j]. Throws std::out_of_range for an invalid source.
template <class Index>
void count_buckets(Ids indptr, i64 first_node, i64 first_edge, std::span<const Index> sources,
                   std::span<const u8> partition_of, size_t partitions, std::span<i64> counts) {
    if (partitions == 0 || partitions > max_partitions || counts.size() != partitions * partitions)
        throw std::invalid_argument("counts is not [partitions^2]");
    const auto partition = [&](size_t node) {
        if (partition_of[node] >= partitions)
            refuse<std::out_of_range>("a node is in partition ", partition_of[node], " of ", partitions);
        return partition_of[node];
    };
    i64 edge = first_edge;
    const auto count = [&](size_t node, std::span<const Index> list) {
        i64* row = counts.data() + partition(node) * partitions;
        for (const Index source : list) {
            if (static_cast<u64>(source) >= partition_of.size()) refuse_source(edge, source, partition_of.size());
            ++row[partition(static_cast<size_t>(source))];
            ++edge;
        }
    };
    for_each_list(indptr, first_node, first_edge, sources, partition_of.size(), count);
}

// Writes the list order, the partition of each source, to `order`. Throws std::out_of_range for an invalid source.
template <class Index>
void partitions_of(std::span<const Index> sources, std::span<const u8> partition_of, std::span<u8> order,
                   unsigned threads) {
    if (order.size() < sources.size()) throw std::out_of_range("no room for the order");
    std::atomic<bool> wrong{false};
    parallel(sources.size(), size_t{1} << 16, threads, [&](size_t begin, size_t end, int) {
        for (size_t i = begin; i < end; ++i) {
            const auto source = static_cast<u64>(sources[i]);
            if (source >= partition_of.size()) {
                wrong = true;
                return;
            }
            order[i] = partition_of[source];
        }
    });
    if (wrong) throw std::out_of_range("an edge comes from a node outside the graph");
}

// Puts the edges of one destination partition into its buckets: the next edge from partition j at out[next[j]++].
// Throws std::out_of_range for a place outside `out`.
template <class Index>
void place_edges(std::span<const Index> sources, std::span<const u8> order, std::span<i64> next, std::span<Index> out) {
    if (order.size() < sources.size() || next.size() > max_partitions)
        throw std::out_of_range("no order for the edges");
    std::array<i64, max_partitions> at;
    at.fill(-1);
    std::copy(next.begin(), next.end(), at.begin());
    for (size_t i = 0; i < sources.size(); ++i) {
        const i64 place = at[order[i]]++;
        if (static_cast<u64>(place) >= out.size()) throw std::out_of_range("more edges than were counted");
        out[static_cast<size_t>(place)] = sources[i];
    }
    std::copy_n(at.begin(), next.size(), next.begin());
}

// Writes to indptr[node + 1] the number of the node's in-edges from buffered partitions, and the slots of these edges to
// `kept`; returns the number of kept edges. nodes, degrees, order: of one partition as a destination, the nodes, the
// lengths of their lists and the list order. slot_of: [partitions], < 0 for a partition not buffered.
// Throws std::out_of_range where the arrays contradict each other or `kept` is too small.
size_t count_kept(Ids nodes, std::span<const u32> degrees, std::span<const u8> order, std::span<const i16> slot_of,
                  std::span<i64> indptr, std::span<u8> kept) {
    if (degrees.size() != nodes.size()) throw std::out_of_range("nodes and degrees differ in length");
    std::array<i16, max_partitions> slots;
    slots.fill(-1);
    std::copy_n(slot_of.begin(), std::min(slot_of.size(), slots.size()), slots.begin());
    size_t at = 0, edge = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
        const auto node = static_cast<u64>(nodes[i]);
        const size_t end = edge + degrees[i], before = at;
        if (indptr.empty() || node >= indptr.size() - 1 || end > order.size())
            throw std::out_of_range("the lists of the partition are longer than its order, or of no node");
        if (kept.size() - at >= end - edge) {
            // All of them would fit: writing each byte and then advancing only for a kept edge saves the branch.
            for (; edge < end; ++edge) {
                const i16 slot = slots[order[edge]];
                kept[at] = static_cast<u8>(slot);
                at += slot >= 0;
            }
        }
        for (; edge < end; ++edge) {
            const i16 slot = slots[order[edge]];
            if (slot < 0) continue;
            if (at == kept.size()) throw std::out_of_range("more edges are buffered than there is room for");
            kept[at++] = static_cast<u8>(slot);
        }
        indptr[node + 1] = static_cast<i64>(at - before);
    }
    if (edge != order.size()) throw std::out_of_range("the order of the partition is longer than its lists");
    return at;
}

// Fills the lists of `nodes`, whose bounds `indptr` holds, from the buckets of the slots: bucket s is
// buckets[starts[s] .. starts[s] + lengths[s]). kept: the slots that count_kept wrote for these nodes.
// Throws std::out_of_range where a bucket is not used up exactly.
template <class Index>
void fill_lists(Ids nodes, std::span<const u8> kept, Ids indptr, std::span<const Index> buckets, Ids starts,
                Ids lengths, std::span<Index> indices) {
    if (starts.size() != lengths.size() || starts.size() > max_partitions)
        throw std::out_of_range("starts and lengths differ in length");
    std::array<i64, max_partitions> next{}, left{}, used{};
    for (size_t slot = 0; slot < starts.size(); ++slot) {
        if (starts[slot] < 0 || lengths[slot] < 0 ||
            static_cast<u64>(starts[slot]) + static_cast<u64>(lengths[slot]) > buckets.size())
            throw std::out_of_range("a bucket lies outside what was read");
        next[slot] = starts[slot];
        left[slot] = lengths[slot];
    }
    // One check for all edges, so that the loop below needs none.
    for (const u8 slot : kept) ++used[slot];
    for (size_t slot = 0; slot < max_partitions; ++slot)
        if (used[slot] != left[slot])
            refuse<std::out_of_range>("a bucket has ", left[slot], " edges, the lists name ", used[slot]);
    size_t edge = 0;
    for (const i64 node : nodes) {
        const auto index = static_cast<size_t>(node);
        if (indptr.empty() || index >= indptr.size() - 1) throw std::out_of_range("a node outside the graph");
        const i64 begin = indptr[index], end = indptr[index + 1];
        if (begin < 0 || end < begin || static_cast<u64>(end) > indices.size() ||
            edge + static_cast<size_t>(end - begin) > kept.size())
            throw std::out_of_range("the lists have more edges than were kept");
        for (i64 at = begin; at < end; ++at)
            indices[static_cast<size_t>(at)] = buckets[static_cast<size_t>(next[kept[edge++]]++)];
    }
    if (edge != kept.size()) throw std::out_of_range("more edges were kept than the lists have");
}

template <class Index>
void bind_for(nb::module_& m, nb::class_<Spread>& spread) {
    m.def("count_buckets", &count_buckets<Index>, "indptr"_a, "first_node"_a, "first_edge"_a, "sources"_a,
          "partition_of"_a, "partitions"_a, "counts"_a, released());
    m.def("partitions_of", &partitions_of<Index>, "sources"_a, "partition_of"_a, "order"_a, "threads"_a, released());
    m.def("place_edges", &place_edges<Index>, "sources"_a, "order"_a, "next"_a, "out"_a, released());
    m.def("fill_lists", &fill_lists<Index>, "nodes"_a, "kept"_a, "indptr"_a, "buckets"_a, "starts"_a, "lengths"_a,
          "indices"_a, released());
    spread.def("lists", &Spread::lists<Index>, "indptr"_a, "first_node"_a, "first_edge"_a, "sources"_a, "region_of"_a,
               released());
}

}  // namespace

void bind_buckets(nb::module_& m) {
    nb::class_<Spread> spread(m, "Spread", "Fills regions of a file through buffers, each a long direct write.");
    spread
        .def(
            "__init__",
            [](Spread* self, const std::string& path, Ids bounds, u32 buffer_bytes, u32 writers,
               const std::string& mode) {
                with_path(path, [&] {
                    new (self)
                        Spread(path, Spread::regions_between(bounds), {buffer_bytes, writers, IoChoice::named(mode)});
                });
            },
            "path"_a, "bounds"_a, nb::kw_only(), "buffer_bytes"_a, "writers"_a, "mode"_a)
        .def("append", &Spread::append, "region"_a, "data"_a, released())
        .def("rows", &Spread::rows, "rows"_a, "regions"_a, released())
        .def("finish", &Spread::finish, released())
        .def_prop_ro("failure", &Spread::failure)
        .def_prop_ro("writes", &Spread::writes)
        .def_prop_ro("bytes_written", &Spread::bytes_written)
        .def_static(
            "bytes",
            [](u64 regions, u32 buffer_bytes, u32 writers) {
                return Spread::bytes(regions, {buffer_bytes, writers, {}});
            },
            "regions"_a, "buffer_bytes"_a, "writers"_a);
    m.attr("MAX_PARTITIONS") = max_partitions;
    m.def("assign_partitions", &assign_partitions, "first"_a, "size"_a, "seed"_a, "partition_of"_a, released());
    m.def("count_kept", &count_kept, "nodes"_a, "degrees"_a, "order"_a, "slot_of"_a, "indptr"_a, "kept"_a, released());
    bind_for<i32>(m, spread);
    bind_for<i64>(m, spread);
}

}  // namespace outcore
