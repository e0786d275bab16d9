// The Kronecker product of a seed graph S (K nodes) and a base graph B (NB nodes), as a list of edges in CSC order of
// which any range can be produced alone: the column of node (i, u) = i * NB + u holds j * NB + v for j in N_S(i) and v
// in N_B(u), ascending when both lists are. (Leskovec et al., "Kronecker Graphs", JMLR 2010, section 2.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outcore {

class Kronecker {
public:
    // Base lists must ascend. Nodes from `num_nodes` on are cut off, with their edges; the cut lies in the last copy.
    // The spans must outlive this object.
    Kronecker(std::span<const std::int64_t> base_indptr, std::span<const std::int32_t> base_indices,
              std::span<const std::int64_t> seed_indptr, std::span<const std::int32_t> seed_indices,
              std::int64_t num_nodes);

    std::int64_t num_nodes() const noexcept { return num_nodes_; }
    std::int64_t num_edges() const noexcept { return block_start_.back(); }

    // Writes edges [start, start + out.size()) of the product's index array.
    void edges(std::int64_t start, std::span<std::int32_t> out, int threads) const;
    void edges(std::int64_t start, std::span<std::int64_t> out, int threads) const;

    // Writes entries [start, start + out.size()) of the product's indptr.
    void indptr(std::int64_t start, std::span<std::int64_t> out, int threads) const;

private:
    template <typename Index>
    friend void write_range(const Kronecker&, std::int64_t, std::int64_t, Index*);

    // Counts the edges of block i before its column u.
    std::int64_t before(std::int64_t i, std::int64_t u) const noexcept {
        const auto block = static_cast<std::size_t>(i);
        const auto column = static_cast<std::size_t>(u);
        return whole_[block] * base_indptr_[column] + (cut_[block] ? cut_indptr_[column] : 0);
    }

    std::span<const std::int64_t> base_indptr_;
    std::span<const std::int32_t> base_indices_;
    std::span<const std::int64_t> seed_indptr_;
    std::span<const std::int32_t> seed_indices_;
    std::int64_t num_nodes_, base_nodes_, copies_;
    std::vector<std::int64_t> cut_indptr_;   // [NB + 1]: edges from sources that exist in the last copy; empty if all do
    std::vector<std::int64_t> whole_;        // [K]: copies that block i takes whole lists from
    std::vector<std::uint8_t> cut_;          // [K]: whether it also takes the shortened list of the last copy
    std::vector<std::int64_t> block_start_;  // [K + 1]: first edge of each block
};

}  // namespace outcore
