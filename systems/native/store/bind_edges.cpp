// Kernels over the edges of a graph in CSC, and their bindings. Aggregation of the first layer out of core: sort edges
// by feature-table piece, add feature rows to target sums. Reordering of a graph: copy rows and edges from memory to
// their new places in a window of the new file.
#include "base/arrays.hpp"
#include "base/team.hpp"
#include "store/edge_run.hpp"

namespace outcore {
namespace {

// Adds the edges to counts[source / piece_rows]. False, with `counts` unchanged, where a source is out of range.
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

// Edge of a piece: the source's row in the piece, and the target counted from the first target of the round.
struct PieceEdge {
    u32 row, target;
};

// Puts the edges from `first_edge` on at edges[next[piece]++]; `indptr` holds the index pointers of the round's targets
// and the end of the last list. Edges of a piece keep their order. False where `indptr` or `next` contradict the edges.
template <class Id>
bool place_by_piece(std::span<const Id> sources, Ids indptr, i64 first_edge, u64 piece_rows, std::span<i64> next,
                    std::span<u64> edges) {
    if (piece_rows == 0) return false;
    const std::span out(reinterpret_cast<PieceEdge*>(edges.data()), edges.size());
    return walk(sources, indptr, first_edge, [&](size_t target, i64, std::span<const Id> list) {
        for (const Id id : list) {
            const u64 source = static_cast<std::make_unsigned_t<Id>>(id), piece = source / piece_rows;
            if (piece >= next.size()) return false;
            const auto place = static_cast<u64>(next[piece]++);
            if (place >= out.size()) return false;
            out[place] = {static_cast<u32>(source - piece * piece_rows), static_cast<u32>(target)};
        }
        return true;
    });
}

// Adds the self-loops of each target to loops[target - first_target]. False where `indptr` contradicts the edges.
template <class Id>
bool count_loops(std::span<const Id> sources, Ids indptr, i64 first_target, i64 first_edge, std::span<i32> loops) {
    return walk(sources, indptr, first_edge, [&](size_t target, i64, std::span<const Id> list) {
        if (target >= loops.size()) return false;
        const i64 node = first_target + static_cast<i64>(target);
        loops[target] += static_cast<i32>(std::ranges::count(list, node));
        return true;
    });
}

// Adds weight * row to sums[target] for each edge; the edges are sorted by target. rows: feature rows of the piece;
// sums: one row per target of the round; weights: one per row of the piece, or none, all 1. first_row, first_target:
// node ids of the piece's first row and the round's first target; skip_loops leaves out edges from a node to itself.
// Each target has one thread: the sums do not depend on their number. False for an edge outside `rows` or `sums`.
bool add_rows(std::span<const u64> packed, std::span<const float> rows, std::span<float> sums, u64 dim,
              std::span<const float> weights, u64 first_row, u64 first_target, bool skip_loops, unsigned threads) {
    if (!weights.empty() && weights.size() * dim < rows.size()) throw std::out_of_range("too few weights");
    const std::span edges(reinterpret_cast<const PieceEdge*>(packed.data()), packed.size());
    if (edges.empty()) return true;
    if (dim == 0) return false;
    const u64 num_rows = rows.size() / dim, targets = sums.size() / dim;
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
            if (edge.row >= num_rows || edge.target >= targets) {
                sound.store(false, std::memory_order_relaxed);
                return;
            }
            if (skip_loops && first_row + edge.row == first_target + edge.target) continue;
            const float weight = weights.empty() ? 1.0F : weights[edge.row];
            const float* __restrict row = rows.data() + edge.row * dim;
            float* __restrict sum = sums.data() + edge.target * dim;
            for (u64 column = 0; column < dim; ++column) sum[column] += weight * row[column];
        }
    });
    return sound;
}

// Copies row i of `rows` to row places[i] - first of `out`, if there is one; leaves the other rows out.
void scatter_rows(Table rows, Ids places, i64 first, OutTable out, unsigned threads) {
    if (rows.row_bytes != out.row_bytes || rows.row_bytes == 0) throw std::invalid_argument("rows differ in size");
    if (rows.num_rows < places.size()) throw std::out_of_range("fewer rows than places");
    parallel(places.size(), 1024, threads, [&](size_t from, size_t to, int) {
        for (size_t i = from; i < to; ++i) {
            const auto place = static_cast<u64>(places[i] - first);
            if (place < out.num_rows) std::memcpy(out.row(place), rows.row(i), rows.row_bytes);
        }
    });
}

// Relabels the edges from `first_edge` of the old graph on, with their targets' old index pointers, by `places` (old id
// to new) and copies them into the new lists of their targets: new_indptr[places[target]] onwards, less `first`. Leaves
// out edges outside [0, out.size()). Returns false where the graph's arrays contradict each other.
template <class Id>
bool relocate_edges(std::span<const Id> sources, Ids indptr, i64 first_target, i64 first_edge, Ids places,
                    Ids new_indptr, i64 first, std::span<Id> out, unsigned threads) {
    if (new_indptr.size() != places.size() + 1) throw std::out_of_range("new_indptr is of another graph");
    std::atomic<bool> sound{true};
    parallel(sources.size(), size_t{1} << 16, threads, [&](size_t from, size_t to, int) {
        const auto relocate = [&](size_t number, i64 edge, std::span<const Id> list) {
            const u64 target = static_cast<u64>(first_target) + number;
            if (target >= places.size() || static_cast<u64>(places[target]) >= places.size()) return false;
            auto at = static_cast<u64>(new_indptr[static_cast<size_t>(places[target])] + edge - indptr[number] - first);
            for (const Id id : list) {
                const u64 source = static_cast<std::make_unsigned_t<Id>>(id);
                if (source >= places.size()) return false;
                if (at < out.size()) out[at] = static_cast<Id>(places[source]);
                ++at;
            }
            return true;
        };
        if (!walk(sources.subspan(from, to - from), indptr, first_edge + static_cast<i64>(from), relocate))
            sound.store(false, std::memory_order_relaxed);
    });
    return sound;
}

template <class Id>
void bind_ids(nb::module_& m) {
    m.def("count_by_piece", &count_by_piece<Id>, "sources"_a.noconvert(), "num_nodes"_a, "piece_rows"_a, "counts"_a,
          released());
    m.def("place_by_piece", &place_by_piece<Id>, "sources"_a.noconvert(), "indptr"_a.noconvert(), "first_edge"_a,
          "piece_rows"_a, "next"_a, "edges"_a, released());
    m.def("count_loops", &count_loops<Id>, "sources"_a.noconvert(), "indptr"_a.noconvert(), "first_target"_a,
          "first_edge"_a, "loops"_a, released());
    m.def("relocate_edges", &relocate_edges<Id>, "sources"_a.noconvert(), "indptr"_a.noconvert(), "first_target"_a,
          "first_edge"_a, "places"_a.noconvert(), "new_indptr"_a.noconvert(), "first"_a, "out"_a, "threads"_a,
          released());
}

}  // namespace

void bind_edges(nb::module_& m) {
    m.def("scatter_rows", &scatter_rows, "rows"_a, "places"_a.noconvert(), "first"_a, "out"_a, "threads"_a, released());
    bind_ids<i32>(m);
    bind_ids<i64>(m);
    m.def("add_rows", &add_rows, "edges"_a.noconvert(), "rows"_a.noconvert(), "sums"_a, "dim"_a,
          "weights"_a.noconvert(), "first_row"_a, "first_target"_a, "skip_loops"_a, "threads"_a, released());
}

}  // namespace outcore
