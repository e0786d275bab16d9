// Randomised fractal expansion of a base graph B (Belletti et al., "Scalable Realistic Recommendation Datasets through
// Fractal Expansions", 2019, section 4): block (i, j) of the n x n blocks is B with fresh random row and column
// permutations, each edge kept with probability keep[i, j]. Any range of columns can be produced alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "permutation.hpp"

namespace outcore {

// Working memory of the columns, kept from call to call. For one caller at a time.
struct FractalWorkspace {
    struct Piece {
        std::size_t thread, begin, end;  // its edges are arenas[thread][begin, end)
        std::size_t place = 0;           // position of the first among the call's edges
    };
    std::vector<std::vector<std::int64_t>> wide;    // [threads] ids of either width
    std::vector<std::vector<std::int32_t>> narrow;
    std::vector<Piece> pieces;

    template <typename Index>
    std::vector<std::vector<Index>>& arenas() noexcept {
        if constexpr (sizeof(Index) == 4) {
            return narrow;
        } else {
            return wide;
        }
    }
};

class Fractal {
public:
    // keep [n * n]: row i is the block of the target (the column of the CSC matrix), j that of the source.
    // The spans of the base graph must outlive this object.
    Fractal(std::span<const std::int64_t> base_indptr, std::span<const std::int32_t> base_indices,
            std::span<const double> keep, std::uint64_t seed);

    std::int64_t num_nodes() const noexcept { return copies_ * base_nodes_; }

    // Counts the edges of the whole result from the draws alone: permutations do not change the number kept.
    std::int64_t count_edges(int threads) const;

    // Makes the lists of columns [first, first + degrees.size()), each ascending, in the workspace; returns the sum
    // of their lengths. `take` copies them out, one list after the other.
    template <typename Index>
    std::int64_t make(std::int64_t first, std::span<std::int64_t> degrees, FractalWorkspace& space, int threads) const;
    template <typename Index>
    static void take(FractalWorkspace& space, std::span<Index> out, int threads);

private:
    static constexpr int kColumns = 16;  // columns made together: one vector of ids to relabel

    struct Scratch {
        std::vector<std::uint32_t> kept;  // sources of one group of columns, block after block
        std::vector<std::size_t> ends;    // [n * kColumns]: end in `kept` of each column's part of each block
    };

    template <typename Index>
    void append_columns(std::int64_t first, int count, Scratch& scratch, std::int64_t* degrees,
                        std::vector<Index>& out) const;
    void append_kept(std::size_t block, std::int64_t begin, std::int64_t end, std::vector<std::uint32_t>& kept) const;

    std::span<const std::int64_t> base_indptr_;
    std::span<const std::int32_t> base_indices_;
    std::uint64_t seed_;
    std::int64_t base_nodes_, copies_;
    std::vector<std::uint32_t> bound_;           // [n * n]: an edge is kept when its draw is below
    std::vector<Permutation> rows_, columns_;    // [n * n]: of sources and of targets
};

}  // namespace outcore
