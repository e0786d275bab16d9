// Graph cut into partitions of nodes and buckets of edges (MariusGNN): bucket (i, j) holds the edges from nodes of
// partition j to nodes of partition i, so that the graph among buffered partitions is read without any other edge.
// A bucket holds source nodes by (destination, position in its neighbour list). The list order, one byte an in-edge,
// gives the bucket of each next edge of a list; so lists are restored exactly, and no edge stores its destination.
#pragma once

#include <algorithm>
#include <span>
#include <stdexcept>

#include "base/types.hpp"

namespace outcore {

inline constexpr size_t max_partitions = 256;

// Edges [first_edge, first_edge + sources.size()) of a graph in CSC, with the bounds of their neighbour lists.
template <class Index>
struct EdgeRun {
    std::span<const i64> indptr;  // of nodes first_node, first_node + 1, …, and the end of the last list
    i64 first_node;
    i64 first_edge;
    std::span<const Index> sources;
};

// Calls visit(node, part of its list inside the run) for each node in order.
// Throws std::out_of_range where the run does not fit a graph of `nodes` nodes.
template <class Index, class Visit>
void for_each_list(const EdgeRun<Index>& run, size_t nodes, const Visit& visit) {
    const auto end = run.first_edge + static_cast<i64>(run.sources.size());
    if (run.indptr.empty() || run.first_node < 0 || static_cast<u64>(run.first_node) + run.indptr.size() - 1 > nodes)
        throw std::out_of_range("the run has nodes that the graph has not");
    if (run.indptr.front() > run.first_edge || run.indptr.back() < end)
        throw std::out_of_range("the run has edges outside its nodes' lists");
    for (size_t i = 0; i + 1 < run.indptr.size(); ++i) {
        if (run.indptr[i + 1] < run.indptr[i])
            throw std::out_of_range("neighbour lists do not follow one another: indptr descends");
        const i64 from = std::max(run.indptr[i], run.first_edge), to = std::min(run.indptr[i + 1], end);
        if (from < to)
            visit(static_cast<size_t>(run.first_node) + i,
                  run.sources.subspan(static_cast<size_t>(from - run.first_edge), static_cast<size_t>(to - from)));
    }
}

// Fills the first partitions of `size` nodes with `first`, in that order, and assigns the other nodes at random: every
// assignment is equally likely, and the seed determines it. Throws std::out_of_range for an invalid or repeated id.
void assign_partitions(std::span<const i64> first, u64 size, u64 seed, std::span<u8> partition_of);

// Adds the run's edges in bucket (i, j) to counts[i * partitions + j]. Throws std::out_of_range for an invalid source.
template <class Index>
void count_buckets(const EdgeRun<Index>& run, std::span<const u8> partition_of, size_t partitions,
                   std::span<i64> counts);

// Writes the list order, the partition of each source, to `order`. Throws std::out_of_range for an invalid source.
template <class Index>
void partitions_of(std::span<const Index> sources, std::span<const u8> partition_of, std::span<u8> order,
                   unsigned threads);

// Puts the edges of one destination partition into its buckets: the next edge from partition j at out[next[j]++].
// Throws std::out_of_range for a place outside `out`.
template <class Index>
void place_edges(std::span<const Index> sources, std::span<const u8> order, std::span<i64> next, std::span<Index> out);

// One partition as a destination: its nodes, the lengths of their lists, and the list order.
struct PartitionLists {
    std::span<const i64> nodes;
    std::span<const u32> degrees;
    std::span<const u8> order;
};

// Writes to indptr[node + 1] the number of edges of its list from buffered partitions, and the slots of these edges to
// `kept`; returns the number of kept edges. slot_of: [partitions], < 0 for a partition not buffered.
// Throws std::out_of_range where the arrays contradict each other or `kept` is too small.
size_t count_kept(const PartitionLists& lists, std::span<const i16> slot_of, std::span<i64> indptr, std::span<u8> kept);

// Fills the lists of `nodes`, whose bounds `indptr` holds, from the buckets of the slots: bucket s is
// buckets[starts[s] .. starts[s] + lengths[s]). kept: the slots that count_kept wrote for these nodes.
// Throws std::out_of_range where a bucket is not used up exactly.
template <class Index>
void fill_lists(std::span<const i64> nodes, std::span<const u8> kept, std::span<const i64> indptr,
                std::span<const Index> buckets, std::span<const i64> starts, std::span<const i64> lengths,
                std::span<Index> indices);

}  // namespace outcore
