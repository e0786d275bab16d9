// Self-reliant partitioning of the training nodes: linear deterministic greedy over L-hop in-neighbours (PaGraph,
// Section 3.2 and Algorithm 1).
#pragma once

#include <span>
#include <vector>

#include "base/types.hpp"

namespace outcore {

template <class Id>
struct CscView {
    std::span<const i64> indptr;
    std::span<const Id> indices;
    u64 num_nodes() const { return indptr.size() - 1; }
};

// Members of each partition, one bit a node.
struct Members {
    std::span<u64> words;  // partition after partition
    u64 stride;            // words of one partition

    bool has(u64 partition, u64 node) const { return (words[partition * stride + node / 64] >> (node % 64) & 1) != 0; }
};

// Assigns train[0], train[1], … in this order to the partition of the highest score that is not full, and marks the
// node and its in-neighbours of up to `hops` hops as members. `given` (a partition for each training node) replaces the
// scores. `threads` threads search in-neighbours of several nodes at once; the result does not depend on their number.
// Returns the partition of each training node. Throws std::invalid_argument for an invalid node or partition.
template <class Id>
std::vector<i64> partition_greedily(const CscView<Id>& graph, std::span<const i64> train, unsigned hops, u64 partitions,
                                    std::span<const i64> given, Members members, unsigned threads);

// Number of pairs of a training node and itself or an in-neighbour of up to `hops` hops, and number of these pairs
// whose second node is no member of the training node's partition.
struct Accesses {
    u64 all = 0;
    u64 outside = 0;
};
template <class Id>
Accesses count_accesses(const CscView<Id>& graph, std::span<const i64> train, std::span<const i64> partition_of,
                        unsigned hops, Members members, unsigned threads);

}  // namespace outcore
