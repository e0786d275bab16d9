// R-MAT edges (Chakrabarti, Zhan and Faloutsos, SDM 2004, section 3; parameters as Graph500 has them). Edge k is a pure
// function of the seed and k, so a CSC graph is built in passes over ranges of its columns without storing the edges.
#pragma once

#include <cstdint>
#include <span>

#include "permutation.hpp"

namespace outcore {

class Rmat {
public:
    // Ids lie in [0, num_nodes), at most 2^32; an edge outside is drawn again. `permute` relabels the nodes, so that
    // ids do not depend on degrees. With `communities` > 0 a fixed share of the edges have their source moved to the
    // nearest id of the target's community, which changes only the id's lowest bits and so hardly its degree; 0 is
    // plain Graph500.
    Rmat(std::int64_t num_nodes, std::int64_t num_edges, std::uint64_t seed, bool permute, std::uint32_t communities);

    // Writes the communities of nodes [first, first + out.size()).
    void labels(std::int64_t first, std::span<std::int64_t> out) const;

    // indptr[c + 1] += in-degree of c; indptr [N + 1] comes zeroed and is summed up on return.
    void count(std::span<std::int64_t> indptr, int threads) const;

    // Writes the sorted lists of columns [first, last) to out [indptr[last] - indptr[first]]; `used` [last - first] is
    // zeroed scratch.
    void fill(std::span<const std::int64_t> indptr, std::int64_t first, std::int64_t last, std::span<std::int32_t> out,
              std::span<std::uint32_t> used, int threads) const;
    void fill(std::span<const std::int64_t> indptr, std::int64_t first, std::int64_t last, std::span<std::int64_t> out,
              std::span<std::uint32_t> used, int threads) const;

    static constexpr int kLanes = 16;
    // Draws the sources and targets of edges [first, first + kLanes).
    void edges(std::int64_t first, std::uint32_t* source, std::uint32_t* target) const;

    std::int64_t num_edges() const noexcept { return num_edges_; }
    int scale() const noexcept { return scale_; }
    std::uint64_t seed() const noexcept { return seed_; }

private:
    void check_size(std::span<const std::int64_t> indptr) const;
    void into_communities(std::int64_t first, std::uint32_t* source, const std::uint32_t* target) const;

    template <typename Index>
    void fill_columns(std::span<const std::int64_t> indptr, std::int64_t first, std::int64_t last,
                      std::span<Index> out, std::span<std::uint32_t> used, int threads) const;

    std::int64_t num_nodes_, num_edges_;
    std::uint64_t seed_;
    bool permute_;
    std::uint32_t communities_;
    int scale_;
    Permutation permutation_;
};

}  // namespace outcore
