// Degree counts for the node rankings over a graph in CSC, chunk by chunk of a streamed graph.
#pragma once

#include <cstdint>
#include <span>

namespace outcore {

// Adds the occurrences of each id to counts[id]. Returns false for an id outside [0, counts.size()), after counting
// some of the others.
template <class Id, class Count>
bool count_ids(std::span<const Id> ids, std::span<Count> counts);

}  // namespace outcore
