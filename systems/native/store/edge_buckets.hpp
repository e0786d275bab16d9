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

}  // namespace outcore
