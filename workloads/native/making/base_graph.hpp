// The small graph that a generator copies many times.
#pragma once

#include <stdexcept>

#include "base/arrays.hpp"
#include "base/refuse.hpp"

namespace outcore {

struct BaseGraph {
    Ids indptr;
    std::span<const i32> indices;

    // Generators read a base graph without checks, so it is checked once, here. Throws std::invalid_argument.
    BaseGraph(const In<i64>& pointers, const In<i32>& sources) : indptr(span_of(pointers)), indices(span_of(sources)) {
        check_offsets(indptr, indices.size(), "the base graph");
        for (const i32 v : indices)
            if (v < 0 || v >= num_nodes()) throw std::invalid_argument("a neighbour id is out of range");
    }

    i64 num_nodes() const noexcept { return static_cast<i64>(indptr.size()) - 1; }
};

}  // namespace outcore
