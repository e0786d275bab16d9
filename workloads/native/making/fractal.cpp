// Produces columns of a randomised fractal expansion: find the base column by the inverse permutation, draw each of its
// edges, relabel the sources of the kept edges, sort.
#include "making/fractal.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>

#include "base/philox_lanes.hpp"
#include "base/team.hpp"

namespace outcore {

namespace {

constexpr int kLanes = 16;
constexpr i64 kGroup = 4 * kLanes;  // draws of one vector call

// Edge e of the base graph draws word e % 4 at counter e / 4 of its block.
OUTCORE_INLINE void set_counters(Lanes<kLanes>& lanes, u64 counter, u32 block) {
    OUTCORE_LANES
    for (int l = 0; l < kLanes; ++l) {
        const u64 at = counter + static_cast<u64>(l);
        lanes.word0[l] = static_cast<u32>(at);
        lanes.word1[l] = static_cast<u32>(at >> 32);
        lanes.word2[l] = block;
        lanes.word3[l] = static_cast<u32>(Purpose::kFractal);
    }
}

// Sets draws[k] for k in [0, kGroup) to the draw of edge 4 * counter + k.
OUTCORE_CLONES void draw_group(u64 seed, u64 counter, u32 block, u32* draws) {
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

// Counts the draws below `bound` among edges [begin, end), begin a multiple of 4.
OUTCORE_CLONES i64 count_below(u64 seed, u32 block, u32 bound, i64 begin, i64 end) {
    i64 kept = 0;
    i64 edge = begin;
    for (; edge + kGroup <= end; edge += kGroup) {
        Lanes<kLanes> lanes;
        set_counters(lanes, static_cast<u64>(edge) / 4, block);
        philox_lanes(lanes, seed);
        u32 group = 0;
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) {
            group += (lanes.word0[l] < bound ? 1U : 0U) + (lanes.word1[l] < bound ? 1U : 0U) +
                     (lanes.word2[l] < bound ? 1U : 0U) + (lanes.word3[l] < bound ? 1U : 0U);
        }
        kept += group;
    }
    if (edge < end) {
        u32 draws[kGroup];
        draw_group(seed, static_cast<u64>(edge) / 4, block, draws);
        for (i64 k = 0; k < end - edge; ++k) kept += draws[k] < bound ? 1 : 0;
    }
    return kept;
}

OUTCORE_CLONES void rename_all(const Permutation& permutation, u32* ids, size_t count) {
    size_t k = 0;
    for (; k + kLanes <= count; k += kLanes) permutation.forward_lanes<kLanes>(ids + k);
    if (k < count) {
        u32 rest[kLanes] = {};
        std::copy(ids + k, ids + count, rest);
        permutation.forward_lanes<kLanes>(rest);
        std::copy(rest, rest + (count - k), ids + k);
    }
}

OUTCORE_CLONES void find_lanes(const Permutation& permutation, u32* ids) { permutation.inverse_lanes<kLanes>(ids); }

}  // namespace

Fractal::Fractal(std::span<const i64> base_indptr, std::span<const i32> base_indices, std::span<const double> keep,
                 u64 seed)
    : base_indptr_(base_indptr),
      base_indices_(base_indices),
      seed_(seed),
      base_nodes_(static_cast<i64>(base_indptr.size()) - 1),
      copies_(std::llround(std::sqrt(static_cast<double>(keep.size())))) {
    if (base_nodes_ < 1 || copies_ < 1 || copies_ * copies_ != static_cast<i64>(keep.size()) || copies_ > 0xFFFF) {
        throw std::invalid_argument("keep must be a square matrix, the base graph not empty");
    }
    bound_.reserve(keep.size());
    rows_.reserve(keep.size());
    columns_.reserve(keep.size());
    const auto n = static_cast<u64>(base_nodes_);
    for (u32 block = 0; block < keep.size(); ++block) {
        bound_.push_back(static_cast<u32>(std::clamp(keep[block], 0.0, 1.0) * 4294967295.0));
        rows_.emplace_back(n, seed, block, 0U);
        columns_.emplace_back(n, seed, block, 1U);
    }
}

i64 Fractal::count_edges(int threads) const {
    const auto edges = static_cast<i64>(base_indices_.size());
    std::atomic<i64> total{0};
    for (u32 block = 0; block < bound_.size(); ++block) {
        parallel(edges, 1 << 20, threads,
                 [&](i64 begin, i64 end, int) { total += count_below(seed_, block, bound_[block], begin, end); });
    }
    return total;
}

void Fractal::append_kept(size_t block, i64 begin, i64 end, std::vector<u32>& kept) const {
    const u32 bound = bound_[block];
    const size_t before = kept.size();
    kept.resize(before + static_cast<size_t>(end - begin));
    u32* out = kept.data() + before;
    u32 draws[kGroup];
    const Philox4x32 philox(seed_);
    for (i64 edge = begin; edge < end;) {
        const auto counter = static_cast<u64>(edge) / 4;
        const auto group = static_cast<i64>(4 * counter);
        i64 drawn = 4;
        if (end - group > 2 * drawn) {  // one vector call is cheaper than three others
            draw_group(seed_, counter, static_cast<u32>(block), draws);
            drawn = kGroup;
        } else {
            const auto words = philox({static_cast<u32>(counter), static_cast<u32>(counter >> 32),
                                       static_cast<u32>(block), static_cast<u32>(Purpose::kFractal)});
            std::copy(words.begin(), words.end(), draws);
        }
        const i64 stop = std::min(end, group + drawn);
        for (; edge < stop; ++edge) {
            // Written whether kept or not: a branch on a random draw is mispredicted half the time.
            *out = static_cast<u32>(base_indices_[static_cast<size_t>(edge)]);
            out += draws[edge - group] < bound ? 1 : 0;
        }
    }
    kept.resize(static_cast<size_t>(out - kept.data()));
}

template <typename Index>
void Fractal::append_columns(i64 first, int count, Scratch& scratch, i64* degrees, std::vector<Index>& out) const {
    const i64 i = first / base_nodes_, target = first % base_nodes_;
    scratch.kept.clear();
    scratch.ends.resize(static_cast<size_t>(copies_) * kColumns);
    for (i64 j = 0; j < copies_; ++j) {
        const auto block = static_cast<size_t>(i * copies_ + j);
        u32 column[kColumns] = {};
        for (int c = 0; c < count; ++c) column[c] = static_cast<u32>(target + c);
        find_lanes(columns_[block], column);
        // The columns lie anywhere in the base graph: prefetch all of them before the first is needed.
        for (int c = 0; c < count; ++c) __builtin_prefetch(&base_indptr_[column[c]]);
        for (int c = 0; c < count; ++c) {
            const i32* const list = base_indices_.data() + base_indptr_[column[c]];
            __builtin_prefetch(list);
            __builtin_prefetch(list + 16);
        }
        const size_t start = scratch.kept.size();
        for (int c = 0; c < count; ++c) {
            append_kept(block, base_indptr_[column[c]], base_indptr_[size_t{column[c]} + 1], scratch.kept);
            scratch.ends[static_cast<size_t>(j * kColumns + c)] = scratch.kept.size();
        }
        rename_all(rows_[block], scratch.kept.data() + start, scratch.kept.size() - start);
        size_t begin = start;
        for (int c = 0; c < count; ++c) {
            const size_t end = scratch.ends[static_cast<size_t>(j * kColumns + c)];
            std::sort(scratch.kept.begin() + static_cast<std::ptrdiff_t>(begin),
                      scratch.kept.begin() + static_cast<std::ptrdiff_t>(end));
            begin = end;
        }
    }
    size_t at = out.size();
    out.resize(at + scratch.kept.size());
    for (int c = 0; c < count; ++c) {
        const size_t before = at;
        for (i64 j = 0; j < copies_; ++j) {
            const auto segment = static_cast<size_t>(j * kColumns + c);
            const size_t end = scratch.ends[segment];
            // Column 0's part follows the last column's part of the previous block.
            size_t begin = 0;
            if (c > 0) {
                begin = scratch.ends[segment - 1];
            } else if (j > 0) {
                begin = scratch.ends[static_cast<size_t>((j - 1) * kColumns + count - 1)];
            }
            const Index offset = static_cast<Index>(j * base_nodes_);
            for (size_t k = begin; k < end; ++k) out[at++] = static_cast<Index>(scratch.kept[k]) + offset;
        }
        degrees[c] = static_cast<i64>(at - before);
    }
}

template <typename Index>
i64 Fractal::make(i64 first, std::span<i64> degrees, FractalWorkspace& space, int threads) const {
    const auto count = static_cast<i64>(degrees.size());
    if (first < 0 || first + count > num_nodes()) throw std::out_of_range("columns outside the graph");
    constexpr i64 kPiece = 32 * kColumns;
    auto& arenas = space.arenas<Index>();
    const auto lanes = static_cast<size_t>(std::max(threads, 1));
    if (arenas.size() < lanes) arenas.resize(lanes);
    for (std::vector<Index>& arena : arenas) arena.clear();
    std::vector<Scratch> scratch(arenas.size());
    space.pieces.assign(static_cast<size_t>((count + kPiece - 1) / kPiece), {});
    parallel(count, kPiece, threads, [&](i64 begin, i64 end, int thread) {
        const auto own = static_cast<size_t>(thread);
        FractalWorkspace::Piece& piece = space.pieces[static_cast<size_t>(begin / kPiece)];
        piece.thread = own;
        piece.begin = arenas[own].size();
        for (i64 c = begin; c < end;) {
            const i64 left_in_copy = base_nodes_ - (first + c) % base_nodes_;
            const auto together = static_cast<int>(std::min({i64{kColumns}, end - c, left_in_copy}));
            append_columns(first + c, together, scratch[own], degrees.data() + c, arenas[own]);
            c += together;
        }
        piece.end = arenas[own].size();
    });
    size_t total = 0;
    for (FractalWorkspace::Piece& piece : space.pieces) {
        piece.place = total;
        total += piece.end - piece.begin;
    }
    return static_cast<i64>(total);
}

template <typename Index>
void Fractal::take(FractalWorkspace& space, std::span<Index> out, int threads) {
    const auto& arenas = space.arenas<Index>();
    parallel(static_cast<i64>(space.pieces.size()), 8, threads, [&](i64 begin, i64 end, int) {
        for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) {
            const FractalWorkspace::Piece& piece = space.pieces[k];
            if (piece.place + (piece.end - piece.begin) > out.size()) throw std::out_of_range("out is too short");
            if (piece.thread >= arenas.size() || piece.end > arenas[piece.thread].size())
                throw std::invalid_argument("these columns were made with ids of another width");
            const auto from = arenas[piece.thread].begin();
            std::copy(from + static_cast<std::ptrdiff_t>(piece.begin), from + static_cast<std::ptrdiff_t>(piece.end),
                      out.begin() + static_cast<std::ptrdiff_t>(piece.place));
        }
    });
}

template i64 Fractal::make<i32>(i64, std::span<i64>, FractalWorkspace&, int) const;
template i64 Fractal::make<i64>(i64, std::span<i64>, FractalWorkspace&, int) const;
template void Fractal::take(FractalWorkspace&, std::span<i32>, int);
template void Fractal::take(FractalWorkspace&, std::span<i64>, int);

}  // namespace outcore
