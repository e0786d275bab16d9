// The small graph that a generator copies many times.
#pragma once

#include <stdexcept>

#include "base/arrays.hpp"

namespace outcore {

struct BaseGraph {
    Ids indptr;
    std::span<const i32> indices;

    // Generators read a base graph without checks, so it is checked once, here. Throws std::invalid_argument.
    BaseGraph(const In<i64>& pointers, const In<i32>& sources) : indptr(span_of(pointers)), indices(span_of(sources)) {
        if (indptr.empty() || indptr.front() != 0 || indptr.back() != static_cast<i64>(indices.size()))
            throw std::invalid_argument("indptr does not fit indices");
        for (size_t u = 0; u + 1 < indptr.size(); ++u)
            if (indptr[u] > indptr[u + 1]) throw std::invalid_argument("indptr decreases");
        for (const i32 v : indices)
            if (v < 0 || v >= num_nodes()) throw std::invalid_argument("a neighbour id is out of range");
    }

    i64 num_nodes() const noexcept { return static_cast<i64>(indptr.size()) - 1; }
};

}  // namespace outcore
