// Kernels of the node rankings over a graph in CSC: degree counts and PageRank steps, chunk by chunk of a streamed graph.
#pragma once

#include <cstdint>
#include <span>

namespace outcore {

// Adds to counts[id] how often each id occurs. Returns false where an id is not in [0, counts.size()): then some were
// counted, none outside.
template <class Id, class Count>
bool count_ids(std::span<const Id> ids, std::span<Count> counts);

}  // namespace outcore
