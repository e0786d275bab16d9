// R-MAT edges (Chakrabarti, Zhan and Faloutsos, SDM 2004, section 3; parameters as Graph500 has them). Edge k is a pure
// function of the seed and k, so a CSC graph is built in passes over ranges of its columns without storing the edges.
#pragma once

#include <span>

#include "base/types.hpp"
#include "making/permutation.hpp"

namespace outcore {

class Rmat {
public:
    // Ids lie in [0, num_nodes), at most 2^32; an edge outside is drawn again. `permute` relabels the nodes, so that
    // ids do not depend on degrees. With `communities` > 0 a fixed share of the edges have their source moved to the
    // nearest id of the target's community, which changes only the id's lowest bits and so hardly its degree; 0 is
    // plain Graph500.
    Rmat(i64 num_nodes, i64 num_edges, u64 seed, bool permute, u32 communities);

    // Writes the communities of nodes [first, first + out.size()).
    void labels(i64 first, std::span<i64> out) const;

    // indptr[c + 1] += in-degree of c; indptr [N + 1] comes zeroed and is summed up on return.
    void count(std::span<i64> indptr, int threads) const;

    // Writes the sorted lists of columns [first, last) to out [indptr[last] - indptr[first]]; `used` [last - first] is
    // zeroed scratch.
    void fill(std::span<const i64> indptr, i64 first, i64 last, std::span<i32> out, std::span<u32> used,
              int threads) const;
    void fill(std::span<const i64> indptr, i64 first, i64 last, std::span<i64> out, std::span<u32> used,
              int threads) const;

    static constexpr int kLanes = 16;
    // Draws the sources and targets of edges [first, first + kLanes).
    void edges(i64 first, u32* source, u32* target) const;

    i64 num_edges() const noexcept { return num_edges_; }
    int scale() const noexcept { return scale_; }
    u64 seed() const noexcept { return seed_; }

private:
    void check_size(std::span<const i64> indptr) const;
    void into_communities(i64 first, u32* source, const u32* target) const;

    template <typename Index>
    void fill_columns(std::span<const i64> indptr, i64 first, i64 last, std::span<Index> out, std::span<u32> used,
                      int threads) const;

    i64 num_nodes_, num_edges_;
    u64 seed_;
    bool permute_;
    u32 communities_;
    int scale_;
    Permutation permutation_;
};

}  // namespace outcore
