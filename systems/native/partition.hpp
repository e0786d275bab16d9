// Self-reliant partitioning of the training nodes: linear deterministic greedy over L-hop in-neighbours (PaGraph, Section
// 3.2 and Algorithm 1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outcore {

template <class Id>
struct CscView {
    std::span<const std::int64_t> indptr;
    std::span<const Id> indices;
    std::uint64_t num_nodes() const { return indptr.size() - 1; }
};

// One bit a node for each partition.
struct Members {
    std::span<std::uint64_t> words;  // partition after partition
    std::uint64_t stride;            // words of one

    bool has(std::uint64_t partition, std::uint64_t node) const {
        return (words[partition * stride + node / 64] >> (node % 64) & 1) != 0;
    }
};

// Assigns train[0], train[1], … in this order, each to the partition of the highest score among those with room, and marks
// it and its in-neighbours of up to `hops` hops as members. With `given` (one partition a training node) it assigns as
// told. In-neighbours of several nodes are found at once by `threads` threads; the result does not depend on them.
// Returns the partition of each training node. Throws std::invalid_argument where an id is no node's.
template <class Id>
std::vector<std::int64_t> partition_greedily(const CscView<Id>& graph, std::span<const std::int64_t> train, unsigned hops,
                                             std::uint64_t partitions, std::span<const std::int64_t> given, Members members,
                                             unsigned threads);

// How many pairs (training node, in-neighbour of up to `hops` hops) there are, and in how many of them the neighbour is no
// member of the training node's partition.
struct Accesses {
    std::uint64_t all = 0;
    std::uint64_t outside = 0;
};
template <class Id>
Accesses count_accesses(const CscView<Id>& graph, std::span<const std::int64_t> train,
                        std::span<const std::int64_t> partition_of, unsigned hops, Members members, unsigned threads);

}  // namespace outcore
