// Produces columns of a randomised fractal expansion: find the base column by the inverse permutation, draw each of its
// edges, rename the sources of those kept, sort.
#include "fractal.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>

#include "parallel.hpp"
#include "philox_lanes.hpp"

namespace outcore {

namespace {

constexpr int kLanes = 16;
constexpr std::int64_t kGroup = 4 * kLanes;  // draws of one vector call

// Edge e of the base graph draws word e % 4 at counter e / 4 of its block.
OUTCORE_INLINE void set_counters(Lanes<kLanes>& lanes, std::uint64_t counter, std::uint32_t block) {
    OUTCORE_LANES
    for (int l = 0; l < kLanes; ++l) {
        const std::uint64_t at = counter + static_cast<std::uint64_t>(l);
        lanes.word0[l] = static_cast<std::uint32_t>(at);
        lanes.word1[l] = static_cast<std::uint32_t>(at >> 32);
        lanes.word2[l] = block;
        lanes.word3[l] = static_cast<std::uint32_t>(Purpose::kFractal);
    }
}

// draws[k] for k in [0, kGroup): of edge 4 * counter + k.
OUTCORE_CLONES void draw_group(std::uint64_t seed, std::uint64_t counter, std::uint32_t block, std::uint32_t* draws) {
    Lanes<kLanes> lanes;
    set_counters(lanes, counter, block);
    philox_lanes(lanes, seed);
    OUTCORE_LANES
    for (int l = 0; l < kLanes; ++l) {
        draws[4 * l] = lanes.word0[l];
        draws[4 * l + 1] = lanes.word1[l];
        draws[4 * l + 2] = lanes.word2[l];
        draws[4 * l + 3] = lanes.word3[l];
    }
}

// Draws below `bound` among edges [begin, end), begin a multiple of 4.
OUTCORE_CLONES std::int64_t count_below(std::uint64_t seed, std::uint32_t block, std::uint32_t bound,
                                        std::int64_t begin, std::int64_t end) {
    std::int64_t kept = 0;
    std::int64_t edge = begin;
    for (; edge + kGroup <= end; edge += kGroup) {
        Lanes<kLanes> lanes;
        set_counters(lanes, static_cast<std::uint64_t>(edge) / 4, block);
        philox_lanes(lanes, seed);
        std::uint32_t group = 0;
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) {
            group += (lanes.word0[l] < bound ? 1U : 0U) + (lanes.word1[l] < bound ? 1U : 0U) +
                     (lanes.word2[l] < bound ? 1U : 0U) + (lanes.word3[l] < bound ? 1U : 0U);
        }
        kept += group;
    }
    if (edge < end) {
        std::uint32_t draws[kGroup];
        draw_group(seed, static_cast<std::uint64_t>(edge) / 4, block, draws);
        for (std::int64_t k = 0; k < end - edge; ++k) kept += draws[k] < bound ? 1 : 0;
    }
    return kept;
}

OUTCORE_CLONES void rename_lanes(const Permutation& permutation, std::uint32_t* ids) {
    permutation.forward_lanes<kLanes>(ids);
}

}  // namespace

Fractal::Fractal(std::span<const std::int64_t> base_indptr, std::span<const std::int32_t> base_indices,
                 std::span<const double> keep, std::uint64_t seed)
    : base_indptr_(base_indptr),
      base_indices_(base_indices),
      seed_(seed),
      base_nodes_(static_cast<std::int64_t>(base_indptr.size()) - 1),
      copies_(std::llround(std::sqrt(static_cast<double>(keep.size())))) {
    if (base_nodes_ < 1 || copies_ < 1 || copies_ * copies_ != static_cast<std::int64_t>(keep.size()) ||
        copies_ > 0xFFFF) {
        throw std::invalid_argument("keep must be a square matrix, the base graph not empty");
    }
    bound_.reserve(keep.size());
    rows_.reserve(keep.size());
    columns_.reserve(keep.size());
    const auto n = static_cast<std::uint64_t>(base_nodes_);
    for (std::uint32_t block = 0; block < keep.size(); ++block) {
        bound_.push_back(static_cast<std::uint32_t>(std::clamp(keep[block], 0.0, 1.0) * 4294967295.0));
        rows_.emplace_back(n, seed, block, 0U);
        columns_.emplace_back(n, seed, block, 1U);
    }
}

std::int64_t Fractal::count_edges(int threads) const {
    const auto edges = static_cast<std::int64_t>(base_indices_.size());
    std::atomic<std::int64_t> total{0};
    for (std::uint32_t block = 0; block < bound_.size(); ++block) {
        parallel_for(edges, 1 << 20, threads, [&](std::int64_t begin, std::int64_t end, int) {
            total += count_below(seed_, block, bound_[block], begin, end);
        });
    }
    return total;
}

template <typename Index>
void Fractal::append_column(std::int64_t column, Columns<Index>& out) const {
    const std::int64_t i = column / base_nodes_, target = column % base_nodes_;
    const std::size_t before = out.edges.size();
    const Philox4x32 philox(seed_);
    std::uint32_t draws[kGroup], kept[kLanes + 1];
    for (std::int64_t j = 0; j < copies_; ++j) {
        const auto block = static_cast<std::size_t>(i * copies_ + j);
        const std::uint32_t bound = bound_[block];
        const auto u = static_cast<std::size_t>(columns_[block].inverse(static_cast<std::uint64_t>(target)));
        const std::int64_t end = base_indptr_[u + 1];
        const Index offset = static_cast<Index>(j * base_nodes_);
        const std::size_t segment = out.edges.size();
        int waiting = 0;
        const auto flush = [&] {
            if (waiting == 0) return;
            std::fill(kept + waiting, kept + kLanes, 0U);
            rename_lanes(rows_[block], kept);
            for (int l = 0; l < waiting; ++l) out.edges.push_back(static_cast<Index>(kept[l]) + offset);
            waiting = 0;
        };
        for (std::int64_t edge = base_indptr_[u]; edge < end;) {
            const auto counter = static_cast<std::uint64_t>(edge) / 4;
            const auto group = static_cast<std::int64_t>(4 * counter);
            std::int64_t drawn = 4;
            // A vector call pays from about a third of its draws on.
            if (end - group > kGroup / 3) {
                draw_group(seed_, counter, static_cast<std::uint32_t>(block), draws);
                drawn = kGroup;
            } else {
                const auto words = philox({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                                           static_cast<std::uint32_t>(block),
                                           static_cast<std::uint32_t>(Purpose::kFractal)});
                std::copy(words.begin(), words.end(), draws);
            }
            const std::int64_t stop = std::min(end, group + drawn);
            for (; edge < stop; ++edge) {
                // Written whether kept or not: a branch on a coin is guessed wrong half the time.
                kept[waiting] = static_cast<std::uint32_t>(base_indices_[static_cast<std::size_t>(edge)]);
                waiting += draws[edge - group] < bound ? 1 : 0;
                if (waiting == kLanes) flush();
            }
        }
        flush();
        std::sort(out.edges.begin() + static_cast<std::ptrdiff_t>(segment), out.edges.end());
    }
    out.degrees.push_back(static_cast<std::int64_t>(out.edges.size() - before));
}

template <typename Index>
Columns<Index> Fractal::columns(std::int64_t first, std::int64_t last, int threads) const {
    if (first < 0 || last > num_nodes() || first > last) throw std::out_of_range("columns outside the graph");
    constexpr std::int64_t kPiece = 512;
    std::vector<Columns<Index>> pieces(static_cast<std::size_t>((last - first + kPiece - 1) / kPiece));
    parallel_for(last - first, kPiece, threads, [&](std::int64_t begin, std::int64_t end, int) {
        Columns<Index>& piece = pieces[static_cast<std::size_t>(begin / kPiece)];
        piece.degrees.reserve(static_cast<std::size_t>(end - begin));
        for (std::int64_t c = first + begin; c < first + end; ++c) append_column(c, piece);
    });
    std::size_t edges = 0;
    for (const Columns<Index>& piece : pieces) edges += piece.edges.size();
    Columns<Index> all;
    all.degrees.reserve(static_cast<std::size_t>(last - first));
    all.edges.reserve(edges);
    for (Columns<Index>& piece : pieces) {
        all.degrees.insert(all.degrees.end(), piece.degrees.begin(), piece.degrees.end());
        all.edges.insert(all.edges.end(), piece.edges.begin(), piece.edges.end());
        piece = {};
    }
    return all;
}

template Columns<std::int32_t> Fractal::columns(std::int64_t, std::int64_t, int) const;
template Columns<std::int64_t> Fractal::columns(std::int64_t, std::int64_t, int) const;

}  // namespace outcore
