// Walks along the edges of a graph in CSC, one neighbour list after the other.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "base/types.hpp"

namespace outcore {

// Calls visit(node, part of its list inside the run) for each node in order. The run: edges [first_edge, first_edge +
// sources.size()) of a graph in CSC, and the index pointers of nodes first_node, first_node + 1, …, with the end of the
// last list. Throws std::out_of_range where the run does not fit a graph of `nodes` nodes.
template <class Index, class Visit>
void for_each_list(Ids indptr, i64 first_node, i64 first_edge, std::span<const Index> sources, size_t nodes,
                   const Visit& visit) {
    const auto end = first_edge + static_cast<i64>(sources.size());
    if (indptr.empty() || first_node < 0 || static_cast<u64>(first_node) + indptr.size() - 1 > nodes)
        throw std::out_of_range("the run has nodes outside the graph");
    if (indptr.front() > first_edge || indptr.back() < end)
        throw std::out_of_range("the run has edges outside its nodes' lists");
    for (size_t i = 0; i + 1 < indptr.size(); ++i) {
        if (indptr[i + 1] < indptr[i])
            throw std::out_of_range("neighbour lists do not follow one another: indptr descends");
        const i64 from = std::max(indptr[i], first_edge), to = std::min(indptr[i + 1], end);
        if (from < to)
            visit(static_cast<size_t>(first_node) + i,
                  sources.subspan(static_cast<size_t>(from - first_edge), static_cast<size_t>(to - from)));
    }
}

// Calls visit(number of the target, first edge, part of its list inside the run) for each list with an edge in the run:
// edges [edge, edge + sources.size()), and the index pointers of consecutive targets, with the end of the last list.
// Returns false where `indptr` does not cover an edge or `visit` returns false.
template <class Id, class Visit>
bool walk(std::span<const Id> sources, Ids indptr, i64 edge, const Visit& visit) {
    if (sources.empty()) return true;
    if (indptr.size() < 2 || edge < indptr.front()) return false;
    const i64 first = edge, stop = edge + static_cast<i64>(sources.size());
    auto target = static_cast<size_t>(std::upper_bound(indptr.begin(), indptr.end(), edge) - indptr.begin() - 1);
    for (; edge < stop; ++target) {
        if (target + 1 >= indptr.size()) return false;
        const i64 end = std::min(indptr[target + 1], stop);
        if (end <= edge) continue;
        if (!visit(target, edge, sources.subspan(static_cast<size_t>(edge - first), static_cast<size_t>(end - edge))))
            return false;
        edge = end;
    }
    return true;
}

}  // namespace outcore
