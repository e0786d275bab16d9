// Draws R-MAT edges sixteen at a time and sorts them into the columns of one range.
#include "making/rmat.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <string>

#include "base/philox_lanes.hpp"
#include "base/team.hpp"

namespace outcore {

namespace {

constexpr int kLanes = Rmat::kLanes;
constexpr i64 kPiece = 1 << 16;  // edges a thread draws at a time; a multiple of kLanes

// Graph500: a = 0.57, b = c = 0.19, d = 0.05, as bounds of 16-bit draws. The first quadrant sets neither bit, the second
// the target's, the third the source's, the fourth both.
constexpr u32 kA = 37356, kAB = 49807, kABC = 62259;

// Share of edges moved into a community, besides those in one by chance: 0.6, as a bound of 32-bit draws.
constexpr u32 kCommunityShare = 2576980377U;

OUTCORE_CLONES void draw_lanes(u64 seed, i64 first, int scale, u32 attempt, u32* source, u32* target) {
    alignas(64) u32 from[kLanes] = {}, to[kLanes] = {};
    for (int level = 0; level < scale; level += 8) {
        Lanes<kLanes> lanes;
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) {
            const auto edge = static_cast<u64>(first) + static_cast<u64>(l);
            lanes.word0[l] = static_cast<u32>(edge);
            lanes.word1[l] = static_cast<u32>(edge >> 32);
            lanes.word2[l] = (attempt << 3) | static_cast<u32>(level >> 3);
            lanes.word3[l] = static_cast<u32>(Purpose::kRmat);
        }
        philox_lanes(lanes, seed);
        const u32* const words[4] = {lanes.word0.data(), lanes.word1.data(), lanes.word2.data(), lanes.word3.data()};
        const int levels = std::min(8, scale - level);
        for (int k = 0; k < levels; ++k) {
            const u32* const word = words[k >> 1];
            const int shift = (k & 1) * 16;
            OUTCORE_LANES
            for (int l = 0; l < kLanes; ++l) {
                const u32 draw = (word[l] >> shift) & 0xFFFFU;
                const u32 past_a = draw >= kA, past_ab = draw >= kAB, past_abc = draw >= kABC;
                from[l] = (from[l] << 1) | past_ab;
                to[l] = (to[l] << 1) | (past_a ^ past_ab ^ past_abc);
            }
        }
    }
    std::copy(from, from + kLanes, source);
    std::copy(to, to + kLanes, target);
}

// Draws one coin for each of edges [first, first + kLanes).
OUTCORE_CLONES void toss_lanes(u64 seed, i64 first, u32* coins) {
    Lanes<kLanes> lanes;
    OUTCORE_LANES
    for (int l = 0; l < kLanes; ++l) {
        const auto edge = static_cast<u64>(first) + static_cast<u64>(l);
        lanes.word0[l] = static_cast<u32>(edge);
        lanes.word1[l] = static_cast<u32>(edge >> 32);
        lanes.word2[l] = 0;
        lanes.word3[l] = static_cast<u32>(Purpose::kCommunity);
    }
    philox_lanes(lanes, seed);
    std::copy(lanes.word0.begin(), lanes.word0.end(), coins);
}

OUTCORE_CLONES void rename_lanes(const Permutation& permutation, u32* ids) { permutation.forward_lanes<kLanes>(ids); }

}  // namespace

Rmat::Rmat(i64 num_nodes, i64 num_edges, u64 seed, bool permute, u32 communities)
    : num_nodes_(num_nodes),
      num_edges_(num_edges),
      seed_(seed),
      permute_(permute),
      communities_(communities),
      scale_(num_nodes > 1 ? std::bit_width(static_cast<u64>(num_nodes) - 1) : 0),
      permutation_(static_cast<u64>(num_nodes), seed, 0, static_cast<u32>(Purpose::kRmat)) {
    if (num_nodes < 1 || num_nodes > (i64{1} << 32) || num_edges < 0) {
        throw std::invalid_argument("R-MAT takes 1 to 2^32 nodes");
    }
}

void Rmat::edges(i64 first, u32* source, u32* target) const {
    draw_lanes(seed_, first, scale_, 0, source, target);
    OUTCORE_LANES
    for (int l = 0; l < kLanes; ++l) {
        // An edge outside the graph is drawn again, at its own number and the next attempt.
        for (u32 attempt = 1; source[l] >= num_nodes_ || target[l] >= num_nodes_; ++attempt) {
            u32 from = 0, to = 0;
            const Philox4x32 philox(seed_);
            const auto edge = static_cast<u64>(first) + static_cast<u64>(l);
            for (int level = 0; level < scale_; level += 8) {
                const auto words =
                    philox({static_cast<u32>(edge), static_cast<u32>(edge >> 32),
                            (attempt << 3) | static_cast<u32>(level >> 3), static_cast<u32>(Purpose::kRmat)});
                for (int k = 0; k < std::min(8, scale_ - level); ++k) {
                    const u32 draw = (words[static_cast<size_t>(k >> 1)] >> ((k & 1) * 16)) & 0xFFFFU;
                    from = (from << 1) | (draw >= kAB ? 1U : 0U);
                    to = (to << 1) | ((draw >= kA && draw < kAB) || draw >= kABC ? 1U : 0U);
                }
            }
            source[l] = from;
            target[l] = to;
        }
    }
    if (communities_ > 0) into_communities(first, source, target);
    if (permute_) {
        rename_lanes(permutation_, source);
        rename_lanes(permutation_, target);
    }
}

void Rmat::into_communities(i64 first, u32* source, const u32* target) const {
    u32 coins[kLanes];
    toss_lanes(seed_, first, coins);
    for (int l = 0; l < kLanes; ++l) {
        if (coins[l] >= kCommunityShare) continue;
        i64 moved = i64{source[l]} - source[l] % communities_ + target[l] % communities_;
        if (moved >= num_nodes_) moved -= communities_;
        if (moved >= 0) source[l] = static_cast<u32>(moved);
    }
}

void Rmat::labels(i64 first, std::span<i64> out) const {
    if (communities_ == 0) throw std::invalid_argument("plain R-MAT has no communities");
    if (first < 0 || first > num_nodes_ - static_cast<i64>(out.size()))
        throw std::out_of_range("nodes outside the graph");
    for (size_t k = 0; k < out.size(); ++k) {
        const u64 id = static_cast<u64>(first) + k;
        out[k] = static_cast<i64>((permute_ ? permutation_.inverse(id) : id) % communities_);
    }
}

void Rmat::check_size(std::span<const i64> indptr) const {
    if (indptr.size() != static_cast<size_t>(num_nodes_) + 1)
        throw std::invalid_argument("indptr has " + std::to_string(indptr.size()) + " entries for " +
                                    std::to_string(num_nodes_) + " nodes");
}

void Rmat::count(std::span<i64> indptr, int threads) const {
    check_size(indptr);
    parallel(num_edges_, kPiece, threads, [&](i64 begin, i64 end, int) {
        u32 source[kLanes], target[kLanes];
        for (i64 first = begin; first < end; first += kLanes) {
            edges(first, source, target);
            const auto lanes = std::min<i64>(kLanes, end - first);
            for (i64 l = 0; l < lanes; ++l) {
                std::atomic_ref<i64>(indptr[size_t{target[l]} + 1]).fetch_add(1, std::memory_order_relaxed);
            }
        }
    });
    for (size_t c = 1; c < indptr.size(); ++c) indptr[c] += indptr[c - 1];
}

template <typename Index>
void Rmat::fill_columns(std::span<const i64> indptr, i64 first, i64 last, std::span<Index> out, std::span<u32> used,
                        int threads) const {
    check_size(indptr);
    if (first < 0 || last > num_nodes_ || first > last) throw std::out_of_range("columns outside the graph");
    const i64 base = indptr[static_cast<size_t>(first)];
    if (static_cast<i64>(out.size()) != indptr[static_cast<size_t>(last)] - base ||
        static_cast<i64>(used.size()) != last - first) {
        throw std::invalid_argument("buffers do not fit the columns");
    }
    parallel(num_edges_, kPiece, threads, [&](i64 begin, i64 end, int) {
        u32 source[kLanes], target[kLanes];
        for (i64 edge = begin; edge < end; edge += kLanes) {
            edges(edge, source, target);
            const auto lanes = std::min<i64>(kLanes, end - edge);
            for (i64 l = 0; l < lanes; ++l) {
                const i64 column = target[l];
                if (column < first || column >= last) continue;
                const u32 slot = std::atomic_ref<u32>(used[static_cast<size_t>(column - first)])
                                     .fetch_add(1, std::memory_order_relaxed);
                const auto at = static_cast<size_t>(indptr[static_cast<size_t>(column)] - base + slot);
                if (at >= out.size())
                    throw std::invalid_argument("indptr is of another graph: column " + std::to_string(column) +
                                                " has more edges");
                out[at] = static_cast<Index>(source[l]);
            }
        }
    });
    const auto columns = indptr.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first) + 1);
    if (!std::is_sorted(columns.begin(), columns.end())) throw std::invalid_argument("indptr decreases");
    // Threads reach a column in any order; sorted, its list is the same for every number of threads.
    parallel(last - first, 4096, threads, [&](i64 begin, i64 end, int) {
        for (i64 c = first + begin; c < first + end; ++c) {
            std::sort(out.begin() + (indptr[static_cast<size_t>(c)] - base),
                      out.begin() + (indptr[static_cast<size_t>(c) + 1] - base));
        }
    });
}

void Rmat::fill(std::span<const i64> indptr, i64 first, i64 last, std::span<i32> out, std::span<u32> used,
                int threads) const {
    fill_columns(indptr, first, last, out, used, threads);
}

void Rmat::fill(std::span<const i64> indptr, i64 first, i64 last, std::span<i64> out, std::span<u32> used,
                int threads) const {
    fill_columns(indptr, first, last, out, used, threads);
}

}  // namespace outcore
