// Sorts edges by piece of the feature table and adds feature rows to sums.
#include "loading/aggregate.hpp"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "base/team.hpp"

namespace outcore {
namespace {

// Calls body(source, target number) for each edge. False where `indptr` does not cover an edge or `body` returns false.
template <class Id, class Body>
bool walk(std::span<const Id> sources, std::span<const i64> indptr, i64 edge, const Body& body) {
    if (sources.empty()) return true;
    if (indptr.size() < 2 || edge < indptr.front()) return false;
    const i64 stop = edge + static_cast<i64>(sources.size());
    auto target = static_cast<size_t>(std::upper_bound(indptr.begin(), indptr.end(), edge) - indptr.begin() - 1);
    const Id* source = sources.data();
    for (; edge < stop; ++target) {
        if (target + 1 >= indptr.size()) return false;
        for (const i64 end = std::min(indptr[target + 1], stop); edge < end; ++edge) {
            if (!body(static_cast<u64>(static_cast<std::make_unsigned_t<Id>>(*source++)), target)) return false;
        }
    }
    return true;
}

}  // namespace

template <class Id>
bool count_by_piece(std::span<const Id> sources, u64 num_nodes, u64 piece_rows, std::span<i64> counts) {
    using Unsigned = std::make_unsigned_t<Id>;
    Unsigned top = 0;
    for (const Id id : sources) top = std::max(top, static_cast<Unsigned>(id));
    if (piece_rows == 0) return false;
    if (!sources.empty() && (top >= num_nodes || top / piece_rows >= counts.size())) return false;
    for (const Id id : sources) ++counts[static_cast<Unsigned>(id) / piece_rows];
    return true;
}

template <class Id>
bool place_by_piece(std::span<const Id> sources, std::span<const i64> indptr, i64 first_edge, u64 piece_rows,
                    std::span<i64> next, std::span<PieceEdge> out) {
    if (piece_rows == 0) return false;
    return walk(sources, indptr, first_edge, [&](u64 source, size_t target) {
        const u64 piece = source / piece_rows;
        if (piece >= next.size()) return false;
        const auto place = static_cast<u64>(next[piece]++);
        if (place >= out.size()) return false;
        out[place] = {static_cast<u32>(source - piece * piece_rows), static_cast<u32>(target)};
        return true;
    });
}

template <class Id>
bool count_loops(std::span<const Id> sources, std::span<const i64> indptr, i64 first_target, i64 first_edge,
                 std::span<i32> loops) {
    return walk(sources, indptr, first_edge, [&](u64 source, size_t target) {
        if (target >= loops.size()) return false;
        loops[target] += source == static_cast<u64>(first_target) + target;
        return true;
    });
}

template bool count_by_piece(std::span<const i32>, u64, u64, std::span<i64>);
template bool count_by_piece(std::span<const i64>, u64, u64, std::span<i64>);
template bool place_by_piece(std::span<const i32>, std::span<const i64>, i64, u64, std::span<i64>,
                             std::span<PieceEdge>);
template bool place_by_piece(std::span<const i64>, std::span<const i64>, i64, u64, std::span<i64>,
                             std::span<PieceEdge>);
template bool count_loops(std::span<const i32>, std::span<const i64>, i64, i64, std::span<i32>);
template bool count_loops(std::span<const i64>, std::span<const i64>, i64, i64, std::span<i32>);

bool add_rows(std::span<const PieceEdge> edges, const RowSums& sums, unsigned threads) {
    if (edges.empty()) return true;
    if (sums.dim == 0) return false;
    const u64 dim = sums.dim;
    const u64 rows = sums.rows.size() / dim;
    const u64 targets = sums.sums.size() / dim;
    // Slices end at target boundaries, so that no two slices add to the same sum.
    const size_t slices = std::min<size_t>(edges.size(), std::max<size_t>(threads, 1) * 8);
    std::vector<size_t> begins{0};
    for (size_t slice = 1; slice < slices; ++slice) {
        size_t at = std::max(begins.back(), edges.size() * slice / slices);
        while (at > 0 && at < edges.size() && edges[at].target == edges[at - 1].target) ++at;
        begins.push_back(at);
    }
    begins.push_back(edges.size());
    std::atomic<bool> sound{true};
    parallel(slices, 1, threads, [&](size_t from, size_t to, int) {
        for (size_t i = begins[from]; i < begins[to]; ++i) {
            const PieceEdge edge = edges[i];
            if (edge.row >= rows || edge.target >= targets) {
                sound.store(false, std::memory_order_relaxed);
                return;
            }
            if (sums.skip_loops && sums.first_row + edge.row == sums.first_target + edge.target) continue;
            const float weight = sums.weights.empty() ? 1.0F : sums.weights[edge.row];
            const float* __restrict row = sums.rows.data() + edge.row * dim;
            float* __restrict sum = sums.sums.data() + edge.target * dim;
            for (u64 column = 0; column < dim; ++column) sum[column] += weight * row[column];
        }
    });
    return sound;
}

}  // namespace outcore
