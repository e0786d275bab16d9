// Kernels of reordering a graph and its feature rows: what is in memory goes to its new place in a window of the new
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcore {

// Row i of `rows` to out[places[i] - first], where that is in [0, out rows); the others are left out.
void scatter_rows(std::span<const std::byte> rows, std::uint64_t row_bytes, std::span<const std::int64_t> places,
                  std::int64_t first, std::span<std::byte> out, unsigned threads);

// The edges `first_edge`, … of the old graph, whose targets' old index pointers are given, renamed by `places` (old id
// to new) and put where the new list of their target has them: new_indptr[places[target]] onwards, less `first`. Those
// outside [0, out.size()) are left out. False where the graph's arrays contradict each other.
template <class Id>
bool relocate_edges(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t first_target,
                    std::int64_t first_edge, std::span<const std::int64_t> places,
                    std::span<const std::int64_t> new_indptr, std::int64_t first, std::span<Id> out, unsigned threads);

}  // namespace outcore
