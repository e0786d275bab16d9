// Randomised fractal expansion of a base graph B (Belletti et al., "Scalable Realistic Recommendation Datasets through
// Fractal Expansions", 2019, section 4): block (i, j) of the n x n blocks is B with fresh random row and column
// permutations, each edge kept with probability keep[i, j]. Any range of columns can be produced alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "permutation.hpp"

namespace outcore {

template <typename Index>
struct Columns {
    std::vector<std::int64_t> degrees;
    std::vector<Index> edges;  // the columns' lists one after the other, each ascending
};

class Fractal {
public:
    // keep [n * n]: row i is the block of the target (the column of the CSC matrix), j that of the source.
    // The spans of the base graph must outlive this object.
    Fractal(std::span<const std::int64_t> base_indptr, std::span<const std::int32_t> base_indices,
            std::span<const double> keep, std::uint64_t seed);

    std::int64_t num_nodes() const noexcept { return copies_ * base_nodes_; }

    // Edges of the whole result, from the draws alone: permutations do not change how many are kept.
    std::int64_t count_edges(int threads) const;

    template <typename Index>
    Columns<Index> columns(std::int64_t first, std::int64_t last, int threads) const;

private:
    template <typename Index>
    void append_column(std::int64_t column, Columns<Index>& out) const;

    std::span<const std::int64_t> base_indptr_;
    std::span<const std::int32_t> base_indices_;
    std::uint64_t seed_;
    std::int64_t base_nodes_, copies_;
    std::vector<std::uint32_t> bound_;           // [n * n]: an edge is kept when its draw is below
    std::vector<Permutation> rows_, columns_;    // [n * n]: of sources and of targets
};

}  // namespace outcore
