// Measures of a CSC graph (clustering, label homophily, out-degrees), communities for labels, and sorting of lists.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

#include "base/types.hpp"

namespace outcore {

template <typename Index>
struct Graph {
    std::span<const i64> indptr;     // [N + 1]
    std::span<const Index> indices;  // [E], in-neighbours

    i64 num_nodes() const noexcept { return static_cast<i64>(indptr.size()) - 1; }
    // Throws std::out_of_range for an unknown node or a list outside `indices`.
    std::span<const Index> neighbours(i64 v) const {
        const auto at = static_cast<size_t>(v);
        if (indptr.empty() || at >= indptr.size() - 1)
            throw std::out_of_range("node " + std::to_string(v) + " is not one of the graph's " +
                                    std::to_string(num_nodes()));
        const i64 start = indptr[at], end = indptr[at + 1];
        if (start < 0 || end < start || static_cast<size_t>(end) > indices.size())
            throw std::out_of_range("the neighbour list of node " + std::to_string(v) + " is [" +
                                    std::to_string(start) + ", " + std::to_string(end) + ") of " +
                                    std::to_string(indices.size()) + " edges");
        return indices.subspan(static_cast<size_t>(start), static_cast<size_t>(end - start));
    }
    // Checks a source: throws std::out_of_range for an unknown node.
    size_t source(Index u) const {
        const auto at = static_cast<size_t>(u);
        if (indptr.empty() || at >= indptr.size() - 1)
            throw std::out_of_range("an edge comes from node " + std::to_string(u) + ", which is not one of " +
                                    std::to_string(num_nodes()));
        return at;
    }
};

// Mean over `nodes` of the share of `pairs` random pairs of distinct in-neighbours that are linked either way; nodes
// with fewer than two distinct in-neighbours count 0. `sorted`: every list ascends.
template <typename Index>
double clustering(const Graph<Index>& graph, std::span<const i64> nodes, int pairs, bool sorted, u64 seed, int threads);

struct Homophily {
    i64 same = 0, edges = 0;
};

// Counts the edges into `nodes` whose ends have the same label, and all of them, without unlabelled (negative) ends.
template <typename Index>
Homophily homophily(const Graph<Index>& graph, std::span<const i64> labels, std::span<const i64> nodes, int threads);

// counts[v] += out-degree of v.
template <typename Index>
void count_sources(std::span<const Index> indices, std::span<i64> counts, int threads);

// Sorts every list in place.
template <typename Index>
void sort_lists(std::span<const i64> indptr, std::span<Index> indices, int threads);

// Splits the nodes into communities of about equal size by linear deterministic greedy placement, streamed `sweeps`
// times (Stanton and Kliot, KDD 2012, section 4; restreaming: Nishimura and Ugander, KDD 2013).
template <typename Index>
void communities(const Graph<Index>& graph, i32 num_communities, int sweeps, u64 seed, std::span<i64> out);

}  // namespace outcore
