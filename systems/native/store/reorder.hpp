// Kernels that reorder a graph and its feature rows: copies from memory to the new places in a window of the new file.
#pragma once

#include <span>

#include "base/types.hpp"

namespace outcore {

// Copies row i of `rows` to out[places[i] - first] if that is a row of `out`; leaves the other rows out.
void scatter_rows(std::span<const std::byte> rows, u64 row_bytes, std::span<const i64> places, i64 first,
                  std::span<std::byte> out, unsigned threads);

// Relabels the edges from `first_edge` of the old graph on, with their targets' old index pointers, by `places` (old id
// to new) and copies them into the new lists of their targets: new_indptr[places[target]] onwards, less `first`. Leaves
// out edges outside [0, out.size()). Returns false where the graph's arrays contradict each other.
template <class Id>
bool relocate_edges(std::span<const Id> sources, std::span<const i64> indptr, i64 first_target, i64 first_edge,
                    std::span<const i64> places, std::span<const i64> new_indptr, i64 first, std::span<Id> out,
                    unsigned threads);

}  // namespace outcore
