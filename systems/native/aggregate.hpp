// Kernels of the first layer's aggregation out of core: edges sorted by the piece of the feature table that their source
// is in, and rows of a piece added to their targets' sums.
#pragma once

#include <cstdint>
#include <span>

namespace outcore {

// Adds to counts[source / piece_rows] the edges of `sources`. False where an id is no node; then nothing is counted.
template <class Id>
bool count_by_piece(std::span<const Id> sources, std::uint64_t num_nodes, std::uint64_t piece_rows,
                    std::span<std::int64_t> counts);

// An edge of a piece: the source's row in the piece, and the target counted from the round's first.
struct PieceEdge {
    std::uint32_t row;
    std::uint32_t target;
};

// Puts the edges `first_edge`, … at out[next[piece]++]; `indptr` has the index pointers of the round's targets and of the
// one after them. Edges of a piece stay in order. False where `indptr` or `next` contradict the edges.
template <class Id>
bool place_by_piece(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t first_edge,
                    std::uint64_t piece_rows, std::span<std::int64_t> next, std::span<PieceEdge> out);

struct RowSums {
    std::span<const float> rows;  // of the piece
    std::span<float> sums;        // of the round's targets
    std::uint64_t dim;
    std::span<const float> weights;       // of the piece's rows, or empty: one
    std::uint64_t first_row, first_target;  // node ids; an edge of a node to itself is left out where `skip_loops`
    bool skip_loops;
};

// sums[target] += weight * row along the edges, which are in the order of their targets. Threads share the targets, so a
// sum is the same for any number of them. False where an edge points outside.
bool add_rows(std::span<const PieceEdge> edges, const RowSums& sums, unsigned threads);

// Adds to loops[target - first_target] the edges of a node to itself. False where `indptr` contradicts the edges.
template <class Id>
bool count_loops(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t first_target,
                 std::int64_t first_edge, std::span<std::int32_t> loops);

}  // namespace outcore
