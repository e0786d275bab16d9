// Self-reliant partitioning of the training nodes: linear deterministic greedy over L-hop in-neighbours (PaGraph,
// Section 3.2 and Algorithm 1).
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/team.hpp"

namespace outcore {

using Members = RowsOf<u64>;  // members of each partition, one bit a node

template <class Id>
struct CscView {
    Ids indptr;
    std::span<const Id> indices;
    u64 num_nodes() const { return indptr.size() - 1; }

    // Throws std::invalid_argument for no graph or no partitions, std::out_of_range for too short rows of members.
    void check(const Members& members) const {
        if (indptr.empty()) throw std::invalid_argument("indptr is empty");
        if (num_nodes() > (u64{1} << 32)) throw std::invalid_argument("more than 2^32 nodes");
        if (members.num_rows == 0) throw std::invalid_argument("there are no partitions");
        if (members.row_bytes * 64 < num_nodes()) throw std::out_of_range("members has too few words");
    }
};

// Search for the in-neighbours of a node, hop by hop; one stamp a node saves clearing between searches.
class Search {
public:
    explicit Search(u64 num_nodes) : stamps_(num_nodes, 0) {}

    // Fills `found` with the node, then its in-neighbours, nearest hops first; false for an invalid id or indptr.
    template <class Id>
    bool run(const CscView<Id>& graph, i64 node, unsigned hops, std::vector<u32>& found) {
        if (++stamp_ == 0) {
            std::fill(stamps_.begin(), stamps_.end(), 0);
            stamp_ = 1;
        }
        found.clear();
        if (static_cast<u64>(node) >= stamps_.size()) return false;
        stamps_[static_cast<size_t>(node)] = stamp_;
        found.push_back(static_cast<u32>(node));
        size_t begin = 0;
        for (unsigned hop = 0; hop < hops; ++hop) {
            const size_t end = found.size();
            for (; begin < end; ++begin) {
                const i64 first = graph.indptr[found[begin]];
                const i64 last = graph.indptr[found[begin] + 1];
                if (first < 0 || last < first || last > static_cast<i64>(graph.indices.size())) return false;
                for (i64 edge = first; edge < last; ++edge) {
                    const auto source = static_cast<std::make_unsigned_t<Id>>(graph.indices[static_cast<size_t>(edge)]);
                    if (source >= stamps_.size()) return false;
                    if (stamps_[source] == stamp_) continue;
                    stamps_[source] = stamp_;
                    found.push_back(static_cast<u32>(source));
                }
            }
        }
        return true;
    }

private:
    std::vector<u32> stamps_;
    u32 stamp_ = 0;
};

// Calls visit(i, found) for each training node in order, with the searches of `threads` nodes under way at once.
template <class Id, class Visit>
void for_each_in_order(const CscView<Id>& graph, Ids train, unsigned hops, unsigned threads, const Visit& visit) {
    const size_t lanes = std::max(1U, threads);
    std::vector<Search> searches(lanes, Search(graph.num_nodes()));
    std::vector<std::vector<u32>> found(lanes);
    std::atomic<bool> sound{true};
    for (size_t begin = 0; begin < train.size(); begin += lanes) {
        const size_t count = std::min(lanes, train.size() - begin);
        parallel(count, 1, threads, [&](size_t lane, size_t, int) {
            if (!searches[lane].run(graph, train[begin + lane], hops, found[lane]))
                sound.store(false, std::memory_order_relaxed);
        });
        if (!sound) throw std::invalid_argument("an id is not a node's, or the index pointers are of another graph");
        for (size_t lane = 0; lane < count; ++lane) visit(begin + lane, found[lane]);
    }
}

// Assigns train[0], train[1], … in this order to the partition of the highest score that is not full, and marks the
// node and its in-neighbours of up to `hops` hops as members. `given` (a partition for each training node) replaces the
// scores. `threads` threads search in-neighbours of several nodes at once; the result does not depend on their number.
// Returns the partition of each training node. Throws std::invalid_argument for an invalid node or partition.
template <class Id>
std::vector<i64> partition_greedily(Ids indptr, std::span<const Id> indices, Ids train, unsigned hops, Ids given,
                                    Members members, unsigned threads) {
    const CscView<Id> graph{indptr, indices};
    graph.check(members);
    if (!given.empty() && given.size() != train.size()) throw std::out_of_range("given has another size");
    const u64 partitions = members.num_rows;
    const double average = static_cast<double>(train.size()) / static_cast<double>(partitions);
    const u64 room = (train.size() + partitions - 1) / partitions;
    constexpr i32 none = -1;
    std::vector<i32> home(graph.num_nodes(), none);  // partition of each assigned training node
    std::vector<u64> num_train(partitions, 0), num_nodes(partitions, 0), common(partitions, 0);
    std::vector<i64> result(train.size());
    for_each_in_order(graph, train, hops, threads, [&](size_t i, const std::vector<u32>& found) {
        u64 chosen = partitions;
        if (!given.empty()) {
            chosen = static_cast<u64>(given[i]);
        } else {
            std::fill(common.begin(), common.end(), 0);
            for (const u32 node : found)
                if (home[node] != none) ++common[static_cast<size_t>(home[node])];
            // Equation 1. Ties (mostly nodes without an assigned neighbour) go to the partition of fewer nodes, then of
            // fewer training nodes.
            double best = -std::numeric_limits<double>::infinity();
            for (u64 p = 0; p < partitions; ++p) {
                if (num_train[p] >= room) continue;
                const double left = average - static_cast<double>(num_train[p]);
                const auto nodes = static_cast<double>(std::max<u64>(num_nodes[p], 1));
                const double score = static_cast<double>(common[p]) * left / nodes;
                const bool fewer = chosen < partitions && std::pair(num_nodes[p], num_train[p]) <
                                                              std::pair(num_nodes[chosen], num_train[chosen]);
                if (score > best || (score == best && fewer)) {
                    best = score;
                    chosen = p;
                }
            }
        }
        if (chosen >= partitions) throw std::invalid_argument("a partition does not exist");
        result[i] = static_cast<i64>(chosen);
        home[found.front()] = static_cast<i32>(chosen);
        ++num_train[chosen];
        u64* const words = members.row(chosen);
        for (const u32 node : found) {
            u64& word = words[node / 64];
            const u64 bit = u64{1} << (node % 64);
            num_nodes[chosen] += (word & bit) == 0;
            word |= bit;
        }
    });
    return result;
}

// Number of pairs of a training node and itself or an in-neighbour of up to `hops` hops, and number of these pairs
// whose second node is no member of the training node's partition.
struct Accesses {
    u64 all = 0, outside = 0;
};

template <class Id>
Accesses count_accesses(Ids indptr, std::span<const Id> indices, Ids train, Ids partition_of, unsigned hops,
                        Members members, unsigned threads) {
    const CscView<Id> graph{indptr, indices};
    graph.check(members);
    if (partition_of.size() != train.size()) throw std::out_of_range("partition_of has another size");
    Accesses counts;
    for_each_in_order(graph, train, hops, threads, [&](size_t i, const std::vector<u32>& found) {
        const auto partition = static_cast<u64>(partition_of[i]);
        if (partition >= members.num_rows) throw std::invalid_argument("a partition does not exist");
        const u64* const words = members.row(partition);
        counts.all += found.size();
        for (const u32 node : found) counts.outside += (words[node / 64] >> (node % 64) & 1) == 0;
    });
    return counts;
}

}  // namespace outcore
