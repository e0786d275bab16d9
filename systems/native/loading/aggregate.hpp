// Kernels of the first layer's out-of-core aggregation: sort edges by feature-table piece, add rows to target sums.
#pragma once

#include <span>

#include "base/types.hpp"

namespace outcore {

// Adds the edges to counts[source / piece_rows]. False, with `counts` unchanged, where a source is out of range.
template <class Id>
bool count_by_piece(std::span<const Id> sources, u64 num_nodes, u64 piece_rows, std::span<i64> counts);

// Edge of a piece: the source's row in the piece, and the target counted from the first target of the round.
struct PieceEdge {
    u32 row;
    u32 target;
};

// Puts the edges from `first_edge` on at out[next[piece]++]; `indptr` holds the index pointers of the round's targets
// and the end of the last list. Edges of a piece keep their order. False where `indptr` or `next` contradict the edges.
template <class Id>
bool place_by_piece(std::span<const Id> sources, std::span<const i64> indptr, i64 first_edge, u64 piece_rows,
                    std::span<i64> next, std::span<PieceEdge> out);

struct RowSums {
    std::span<const float> rows;  // feature rows of the piece
    std::span<float> sums;        // one row per target of the round
    u64 dim;
    std::span<const float> weights;  // one per row of the piece; empty: all weights are 1
    u64 first_row, first_target;     // node ids of the piece's first row and the round's first target
    bool skip_loops;                 // leave out edges from a node to itself
};

// Adds weight * row to sums[target] for each edge; the edges are sorted by target. Each target belongs to one thread,
// so the sums do not depend on the number of threads. False where an edge points outside `rows` or `sums`.
bool add_rows(std::span<const PieceEdge> edges, const RowSums& sums, unsigned threads);

// Adds the self-loops of each target to loops[target - first_target]. False where `indptr` contradicts the edges.
template <class Id>
bool count_loops(std::span<const Id> sources, std::span<const i64> indptr, i64 first_target, i64 first_edge,
                 std::span<i32> loops);

}  // namespace outcore
