// Sorting of edges into bins, sums along the edges, and the steps of PageRank.
#include "rank/ranking_bins.hpp"

#include <cmath>
#include <type_traits>

#include "base/team.hpp"
#include "store/edge_run.hpp"

namespace outcore {

u64 BinnedEdges::part_edges(u64 bins) {
    // Small enough for the second-level cache during the sort, large enough that every bin gets some edges.
    return std::max<u64>(u64{1} << 18, bins * 64);
}

u64 BinnedEdges::plan_bytes(u64 num_nodes, u64 edges, u64 targets, u64 appends) {
    const u64 bins = Binning(num_nodes).bins();
    const u64 parts = edges / part_edges(bins) + targets / part_targets + appends + 1;
    return 4 * edges + 2 * parts * (4 * (bins + 1) + sizeof(Part));  // vectors may grow to twice their size
}

void BinnedEdges::clear() {
    size_ = 0;
    parts_.clear();
    begins_.clear();
}

template <class Id>
bool BinnedEdges::append(std::span<const Id> sources, Ids indptr, i64 first_target, i64 first_edge, unsigned threads) {
    if (sources.empty()) return true;
    if (sources.size() > capacity_ - size_) throw std::length_error("more edges than there is room for");
    if (indptr.size() < 2) return false;
    const auto targets = static_cast<i64>(indptr.size()) - 1;
    const auto nodes = static_cast<i64>(num_nodes_);
    if (first_target < 0 || targets > nodes || first_target > nodes - targets) return false;
    const u64 bins = binning_.bins();
    const size_t old = parts_.size();
    const auto failed = [&] {
        parts_.resize(old);
        begins_.resize(old * (bins + 1));
        return false;
    };
    for (u64 begin = 0; begin < sources.size();) {
        // The edge belongs to the last target that begins at or before it; earlier ones with that begin are empty.
        const i64 edge = first_edge + static_cast<i64>(begin);
        const auto target = std::upper_bound(indptr.begin(), indptr.end(), edge) - indptr.begin() - 1;
        if (target < 0 || target >= targets) return failed();
        const auto last = std::min<i64>(targets, target + static_cast<i64>(part_targets));
        const i64 limit = indptr[static_cast<size_t>(last)] - first_edge;
        if (limit <= static_cast<i64>(begin)) return failed();
        const u64 end = std::min({static_cast<u64>(sources.size()), begin + part_edges(bins), static_cast<u64>(limit)});
        parts_.push_back({size_ + begin, size_ + end, first_target + target});
        begin = end;
    }
    begins_.resize(parts_.size() * (bins + 1), 0);
    std::atomic<bool> sound{true};
    parallel(parts_.size() - old, 1, threads, [&](size_t i, size_t, int) {
        const Part& part = parts_[old + i];
        const auto own = sources.subspan(part.begin - size_, part.end - part.begin);
        const i64 edge = first_edge + static_cast<i64>(part.begin - size_);
        if (!sort_part(part, begins_.data() + (old + i) * (bins + 1), own, indptr, first_target, edge))
            sound.store(false, std::memory_order_relaxed);
    });
    if (!sound) return failed();
    size_ += sources.size();
    return true;
}

template <class Id>
bool BinnedEdges::sort_part(const Part& part, u32* next, std::span<const Id> sources, Ids indptr, i64 first_target,
                            i64 first_edge) {
    using Unsigned = std::make_unsigned_t<Id>;
    const u64 bins = binning_.bins();
    const unsigned shift = binning_.shift;
    const auto mask = static_cast<Unsigned>(bins - 1);
    Unsigned top = 0;
    for (const Id id : sources) top = std::max(top, static_cast<Unsigned>(id));
    if (top >= num_nodes_) return false;
    // next[bin + 2] counts the edges of the bin; summed, next[bin + 1] is its begin, and after the copies its end.
    for (const Id id : sources) {
        const u64 bin = static_cast<Unsigned>(id) & mask;
        if (bin + 2 <= bins) ++next[bin + 2];
    }
    for (u64 bin = 2; bin <= bins; ++bin) next[bin] += next[bin - 1];
    u32* const out = edges_ + part.begin;
    return walk(sources, indptr, first_edge, [&](size_t target, i64, std::span<const Id> list) {
        const u64 row = target - static_cast<u64>(part.target - first_target);
        if (row >= part_targets) return false;
        const auto high = static_cast<u32>(row << Binning::local_bits);
        for (const Id id : list) {
            const auto node = static_cast<Unsigned>(id);
            out[next[(node & mask) + 1]++] = high | static_cast<u32>(node >> shift);
        }
        return true;
    });
}

template bool BinnedEdges::append(std::span<const i32>, Ids, i64, i64, unsigned);
template bool BinnedEdges::append(Ids, Ids, i64, i64, unsigned);

void add_along(std::span<const BinnedEdges* const> chunks, std::span<const double> values, std::span<double> sums,
               unsigned threads) {
    for (const BinnedEdges* chunk : chunks)
        if (chunk->num_nodes() != values.size()) throw std::out_of_range("the edges are of a graph of another size");
    const Binning binning(values.size());
    if (sums.size() < binning.entries()) throw std::out_of_range("sums has too few entries");
    constexpr u32 low = (u32{1} << Binning::local_bits) - 1;
    constexpr std::ptrdiff_t ahead = 16;
    parallel(binning.bins(), 1, threads, [&](size_t bin, size_t, int) {
        double* const sum = sums.data() + bin * binning.span;
        for (const BinnedEdges* chunk : chunks) {
            const u32* begins = chunk->begins_.data() + bin;
            for (const auto& part : chunk->parts_) {
                const double* const value = values.data() + part.target;
                const u32* edge = chunk->edges_ + part.begin + begins[0];
                const u32* const end = chunk->edges_ + part.begin + begins[1];
                const auto add = [&] { sum[*edge & low] += value[*edge >> Binning::local_bits]; };
                // A bin is larger than the second-level cache of most cores: prefetch its sums.
                for (; end - edge > ahead; ++edge) {
                    __builtin_prefetch(sum + (edge[ahead] & low), 1);
                    add();
                }
                for (; edge != end; ++edge) add();
                begins += binning.bins() + 1;
            }
        }
    });
}

double pagerank_step(std::span<double> scores, std::span<double> sums, std::span<const double> before, double base,
                     double damping, unsigned threads) {
    const Binning binning(scores.size());
    if (sums.size() < binning.entries()) throw std::out_of_range("sums has too few entries");
    if (!before.empty() && before.size() != scores.size()) throw std::out_of_range("before has another size");
    constexpr size_t block = size_t{1} << 16;
    std::vector<double> changes((scores.size() + block - 1) / block, 0.0);
    parallel(scores.size(), block, threads, [&](size_t begin, size_t end, int) {
        double change = 0.0;
        for (size_t node = begin; node < end; ++node) {
            double& sum = sums[binning.place(node)];
            scores[node] = base + damping * sum;
            sum = 0.0;
            if (!before.empty()) change += std::abs(scores[node] - before[node]);
        }
        changes[begin / block] = change;
    });
    double change = 0.0;
    for (const double part : changes) change += part;
    return change;
}

bool divide_by_degrees(std::span<double> scores, Ids indptr, unsigned threads) {
    if (indptr.size() != scores.size() + 1) throw std::out_of_range("indptr has another size");
    std::atomic<bool> sound{true};
    parallel(scores.size(), size_t{1} << 16, threads, [&](size_t from, size_t to, int) {
        bool rises = true;
        for (size_t i = from; i < to; ++i) {
            const i64 degree = indptr[i + 1] - indptr[i];
            rises &= degree >= 0;
            scores[i] = degree > 0 ? scores[i] / static_cast<double>(degree) : 0.0;
        }
        if (!rises) sound.store(false, std::memory_order_relaxed);
    });
    return sound;
}

}  // namespace outcore
