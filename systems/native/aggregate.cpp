// Sorts edges by piece of the feature table and adds feature rows to sums.
#include "aggregate.hpp"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "task_pool.hpp"

namespace outcore {
namespace {

// Calls body(source, target number) for each edge. False where `indptr` does not cover an edge or `body` returns false.
template <class Id, class Body>
bool walk(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t edge, const Body& body) {
    if (sources.empty()) return true;
    if (indptr.size() < 2 || edge < indptr.front()) return false;
    const std::int64_t stop = edge + static_cast<std::int64_t>(sources.size());
    auto target = static_cast<std::size_t>(std::upper_bound(indptr.begin(), indptr.end(), edge) - indptr.begin() - 1);
    const Id* source = sources.data();
    for (; edge < stop; ++target) {
        if (target + 1 >= indptr.size()) return false;
        for (const std::int64_t end = std::min(indptr[target + 1], stop); edge < end; ++edge) {
            if (!body(static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<Id>>(*source++)), target)) return false;
        }
    }
    return true;
}

}  // namespace

template <class Id>
bool count_by_piece(std::span<const Id> sources, std::uint64_t num_nodes, std::uint64_t piece_rows,
                    std::span<std::int64_t> counts) {
    using Unsigned = std::make_unsigned_t<Id>;
    Unsigned top = 0;
    for (const Id id : sources) top = std::max(top, static_cast<Unsigned>(id));
    if (piece_rows == 0) return false;
    if (!sources.empty() && (top >= num_nodes || top / piece_rows >= counts.size())) return false;
    for (const Id id : sources) ++counts[static_cast<Unsigned>(id) / piece_rows];
    return true;
}

template <class Id>
bool place_by_piece(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t first_edge,
                    std::uint64_t piece_rows, std::span<std::int64_t> next, std::span<PieceEdge> out) {
    if (piece_rows == 0) return false;
    return walk(sources, indptr, first_edge, [&](std::uint64_t source, std::size_t target) {
        const std::uint64_t piece = source / piece_rows;
        if (piece >= next.size()) return false;
        const auto place = static_cast<std::uint64_t>(next[piece]++);
        if (place >= out.size()) return false;
        out[place] = {static_cast<std::uint32_t>(source - piece * piece_rows), static_cast<std::uint32_t>(target)};
        return true;
    });
}

template <class Id>
bool count_loops(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t first_target,
                 std::int64_t first_edge, std::span<std::int32_t> loops) {
    return walk(sources, indptr, first_edge, [&](std::uint64_t source, std::size_t target) {
        if (target >= loops.size()) return false;
        loops[target] += source == static_cast<std::uint64_t>(first_target) + target;
        return true;
    });
}

template bool count_by_piece(std::span<const std::int32_t>, std::uint64_t, std::uint64_t, std::span<std::int64_t>);
template bool count_by_piece(std::span<const std::int64_t>, std::uint64_t, std::uint64_t, std::span<std::int64_t>);
template bool place_by_piece(std::span<const std::int32_t>, std::span<const std::int64_t>, std::int64_t, std::uint64_t,
                             std::span<std::int64_t>, std::span<PieceEdge>);
template bool place_by_piece(std::span<const std::int64_t>, std::span<const std::int64_t>, std::int64_t, std::uint64_t,
                             std::span<std::int64_t>, std::span<PieceEdge>);
template bool count_loops(std::span<const std::int32_t>, std::span<const std::int64_t>, std::int64_t, std::int64_t,
                          std::span<std::int32_t>);
template bool count_loops(std::span<const std::int64_t>, std::span<const std::int64_t>, std::int64_t, std::int64_t,
                          std::span<std::int32_t>);

bool add_rows(std::span<const PieceEdge> edges, const RowSums& sums, unsigned threads) {
    if (edges.empty()) return true;
    if (sums.dim == 0) return false;
    const std::uint64_t dim = sums.dim;
    const std::uint64_t rows = sums.rows.size() / dim;
    const std::uint64_t targets = sums.sums.size() / dim;
    // Slices end at target boundaries, so that no two slices add to the same sum.
    const std::size_t slices = std::min<std::size_t>(edges.size(), std::max<std::size_t>(threads, 1) * 8);
    std::vector<std::size_t> begins{0};
    for (std::size_t slice = 1; slice < slices; ++slice) {
        std::size_t at = std::max(begins.back(), edges.size() * slice / slices);
        while (at > 0 && at < edges.size() && edges[at].target == edges[at - 1].target) ++at;
        begins.push_back(at);
    }
    begins.push_back(edges.size());
    std::atomic<bool> sound{true};
    TaskPool::shared().run(slices, 1, threads, [&](std::size_t from, std::size_t to) {
        for (std::size_t i = begins[from]; i < begins[to]; ++i) {
            const PieceEdge edge = edges[i];
            if (edge.row >= rows || edge.target >= targets) {
                sound.store(false, std::memory_order_relaxed);
                return;
            }
            if (sums.skip_loops && sums.first_row + edge.row == sums.first_target + edge.target) continue;
            const float weight = sums.weights.empty() ? 1.0F : sums.weights[edge.row];
            const float* __restrict row = sums.rows.data() + edge.row * dim;
            float* __restrict sum = sums.sums.data() + edge.target * dim;
            for (std::uint64_t column = 0; column < dim; ++column) sum[column] += weight * row[column];
        }
    });
    return sound;
}

}  // namespace outcore
