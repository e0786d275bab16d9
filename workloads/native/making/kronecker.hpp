// The Kronecker product of a seed graph S (K nodes) and a base graph B (NB nodes), as a list of edges in CSC order of
// which any range can be produced alone: the column of node (i, u) = i * NB + u holds j * NB + v for j in N_S(i) and v
// in N_B(u), ascending when both lists are. (Leskovec et al., "Kronecker Graphs", JMLR 2010, section 2.)
#pragma once

#include <span>
#include <vector>

#include "base/types.hpp"

namespace outcore {

class Kronecker {
public:
    // Base lists must ascend. Nodes from `num_nodes` on are cut off, with their edges; the cut lies in the last copy.
    // The spans must outlive this object.
    Kronecker(std::span<const i64> base_indptr, std::span<const i32> base_indices, std::span<const i64> seed_indptr,
              std::span<const i32> seed_indices, i64 num_nodes);

    i64 num_nodes() const noexcept { return num_nodes_; }
    i64 num_edges() const noexcept { return block_start_.back(); }

    // Writes edges [start, start + out.size()) of the product's index array.
    void edges(i64 start, std::span<i32> out, int threads) const;
    void edges(i64 start, std::span<i64> out, int threads) const;

    // Writes entries [start, start + out.size()) of the product's indptr.
    void indptr(i64 start, std::span<i64> out, int threads) const;

private:
    template <typename Index>
    friend void write_range(const Kronecker&, i64, i64, Index*);

    // Counts the edges of block i before its column u.
    i64 before(i64 i, i64 u) const noexcept {
        const auto block = static_cast<size_t>(i);
        const auto column = static_cast<size_t>(u);
        return whole_[block] * base_indptr_[column] + (cut_[block] ? cut_indptr_[column] : 0);
    }

    std::span<const i64> base_indptr_;
    std::span<const i32> base_indices_;
    std::span<const i64> seed_indptr_;
    std::span<const i32> seed_indices_;
    i64 num_nodes_, base_nodes_, copies_;
    std::vector<i64> cut_indptr_;   // [NB + 1]: edges from sources that exist in the last copy; empty if all do
    std::vector<i64> whole_;        // [K]: copies that block i takes whole lists from
    std::vector<u8> cut_;           // [K]: whether it also takes the shortened list of the last copy
    std::vector<i64> block_start_;  // [K + 1]: first edge of each block
};

}  // namespace outcore
