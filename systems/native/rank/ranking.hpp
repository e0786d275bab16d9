// Degree counts for the node rankings over a graph in CSC, chunk by chunk of a streamed graph.
#pragma once

#include <span>

#include "base/types.hpp"

namespace outcore {

// Adds the occurrences of each id to counts[id]; false for an id outside `counts`, after some other ids were counted.
template <class Id, class Count>
bool count_ids(std::span<const Id> ids, std::span<Count> counts);

}  // namespace outcore
