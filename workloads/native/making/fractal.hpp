// Randomised fractal expansion of a base graph B (Belletti et al., "Scalable Realistic Recommendation Datasets through
// Fractal Expansions", 2019, section 4): block (i, j) of the n x n blocks is B with fresh random row and column
// permutations, each edge kept with probability keep[i, j]. Any range of columns can be produced alone.
#pragma once

#include <span>
#include <vector>

#include "base/types.hpp"
#include "making/permutation.hpp"

namespace outcore {

// Working memory of the columns, kept from call to call. For one caller at a time.
struct FractalWorkspace {
    struct Piece {
        size_t thread, begin, end;  // its edges are arenas[thread][begin, end)
        size_t place = 0;           // position of the first among the call's edges
    };
    std::vector<std::vector<i64>> wide;  // [threads] ids of either width
    std::vector<std::vector<i32>> narrow;
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
    Fractal(std::span<const i64> base_indptr, std::span<const i32> base_indices, std::span<const double> keep,
            u64 seed);

    i64 num_nodes() const noexcept { return copies_ * base_nodes_; }

    // Counts the edges of the whole result from the draws alone: permutations do not change the number kept.
    i64 count_edges(int threads) const;

    // Makes the lists of columns [first, first + degrees.size()), each ascending, in the workspace; returns the sum
    // of their lengths. `take` copies them out, one list after the other.
    template <typename Index>
    i64 make(i64 first, std::span<i64> degrees, FractalWorkspace& space, int threads) const;
    template <typename Index>
    static void take(FractalWorkspace& space, std::span<Index> out, int threads);

private:
    static constexpr int kColumns = 16;  // columns made together: one vector of ids to relabel

    struct Scratch {
        std::vector<u32> kept;     // sources of one group of columns, block after block
        std::vector<size_t> ends;  // [n * kColumns]: end in `kept` of each column's part of each block
    };

    template <typename Index>
    void append_columns(i64 first, int count, Scratch& scratch, i64* degrees, std::vector<Index>& out) const;
    void append_kept(size_t block, i64 begin, i64 end, std::vector<u32>& kept) const;

    std::span<const i64> base_indptr_;
    std::span<const i32> base_indices_;
    u64 seed_;
    i64 base_nodes_, copies_;
    std::vector<u32> bound_;                   // [n * n]: an edge is kept when its draw is below
    std::vector<Permutation> rows_, columns_;  // [n * n]: of sources and of targets
};

}  // namespace outcore
