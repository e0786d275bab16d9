// Draws R-MAT edges sixteen at a time and sorts them into the columns of one range.
#include "rmat.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <string>

#include "parallel.hpp"
#include "philox_lanes.hpp"

namespace outcore {

namespace {

constexpr int kLanes = Rmat::kLanes;
constexpr std::int64_t kPiece = 1 << 16;  // edges a thread draws at a time; a multiple of kLanes

// Graph500: a = 0.57, b = c = 0.19, d = 0.05, as bounds of 16-bit draws. The first quadrant sets neither bit, the second
// the target's, the third the source's, the fourth both.
constexpr std::uint32_t kA = 37356, kAB = 49807, kABC = 62259;

// Share of edges moved into a community, besides those in one by chance: 0.6, as a bound of 32-bit draws.
constexpr std::uint32_t kCommunityShare = 2576980377U;

OUTCORE_CLONES void draw_lanes(std::uint64_t seed, std::int64_t first, int scale, std::uint32_t attempt,
                               std::uint32_t* source, std::uint32_t* target) {
    alignas(64) std::uint32_t from[kLanes] = {}, to[kLanes] = {};
    for (int level = 0; level < scale; level += 8) {
        Lanes<kLanes> lanes;
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) {
            const auto edge = static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(l);
            lanes.word0[l] = static_cast<std::uint32_t>(edge);
            lanes.word1[l] = static_cast<std::uint32_t>(edge >> 32);
            lanes.word2[l] = (attempt << 3) | static_cast<std::uint32_t>(level >> 3);
            lanes.word3[l] = static_cast<std::uint32_t>(Purpose::kRmat);
        }
        philox_lanes(lanes, seed);
        const std::uint32_t* const words[4] = {lanes.word0.data(), lanes.word1.data(), lanes.word2.data(),
                                               lanes.word3.data()};
        const int levels = std::min(8, scale - level);
        for (int k = 0; k < levels; ++k) {
            const std::uint32_t* const word = words[k >> 1];
            const int shift = (k & 1) * 16;
            OUTCORE_LANES
            for (int l = 0; l < kLanes; ++l) {
                const std::uint32_t draw = (word[l] >> shift) & 0xFFFFU;
                const std::uint32_t past_a = draw >= kA, past_ab = draw >= kAB, past_abc = draw >= kABC;
                from[l] = (from[l] << 1) | past_ab;
                to[l] = (to[l] << 1) | (past_a ^ past_ab ^ past_abc);
            }
        }
    }
    std::copy(from, from + kLanes, source);
    std::copy(to, to + kLanes, target);
}

// Draws one coin for each of edges [first, first + kLanes).
OUTCORE_CLONES void toss_lanes(std::uint64_t seed, std::int64_t first, std::uint32_t* coins) {
    Lanes<kLanes> lanes;
    OUTCORE_LANES
    for (int l = 0; l < kLanes; ++l) {
        const auto edge = static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(l);
        lanes.word0[l] = static_cast<std::uint32_t>(edge);
        lanes.word1[l] = static_cast<std::uint32_t>(edge >> 32);
        lanes.word2[l] = 0;
        lanes.word3[l] = static_cast<std::uint32_t>(Purpose::kCommunity);
    }
    philox_lanes(lanes, seed);
    std::copy(lanes.word0.begin(), lanes.word0.end(), coins);
}

OUTCORE_CLONES void rename_lanes(const Permutation& permutation, std::uint32_t* ids) {
    permutation.forward_lanes<kLanes>(ids);
}

}  // namespace

Rmat::Rmat(std::int64_t num_nodes, std::int64_t num_edges, std::uint64_t seed, bool permute, std::uint32_t communities)
    : num_nodes_(num_nodes),
      num_edges_(num_edges),
      seed_(seed),
      permute_(permute),
      communities_(communities),
      scale_(num_nodes > 1 ? std::bit_width(static_cast<std::uint64_t>(num_nodes) - 1) : 0),
      permutation_(static_cast<std::uint64_t>(num_nodes), seed, 0, static_cast<std::uint32_t>(Purpose::kRmat)) {
    if (num_nodes < 1 || num_nodes > (std::int64_t{1} << 32) || num_edges < 0) {
        throw std::invalid_argument("R-MAT takes 1 to 2^32 nodes");
    }
}

void Rmat::edges(std::int64_t first, std::uint32_t* source, std::uint32_t* target) const {
    draw_lanes(seed_, first, scale_, 0, source, target);
    OUTCORE_LANES
    for (int l = 0; l < kLanes; ++l) {
        // An edge outside the graph is drawn again, at its own number and the next attempt.
        for (std::uint32_t attempt = 1; source[l] >= num_nodes_ || target[l] >= num_nodes_; ++attempt) {
            std::uint32_t from = 0, to = 0;
            const Philox4x32 philox(seed_);
            const auto edge = static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(l);
            for (int level = 0; level < scale_; level += 8) {
                const auto words = philox({static_cast<std::uint32_t>(edge), static_cast<std::uint32_t>(edge >> 32),
                                           (attempt << 3) | static_cast<std::uint32_t>(level >> 3),
                                           static_cast<std::uint32_t>(Purpose::kRmat)});
                for (int k = 0; k < std::min(8, scale_ - level); ++k) {
                    const std::uint32_t draw = (words[static_cast<std::size_t>(k >> 1)] >> ((k & 1) * 16)) & 0xFFFFU;
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

void Rmat::into_communities(std::int64_t first, std::uint32_t* source, const std::uint32_t* target) const {
    std::uint32_t coins[kLanes];
    toss_lanes(seed_, first, coins);
    for (int l = 0; l < kLanes; ++l) {
        if (coins[l] >= kCommunityShare) continue;
        std::int64_t moved = std::int64_t{source[l]} - source[l] % communities_ + target[l] % communities_;
        if (moved >= num_nodes_) moved -= communities_;
        if (moved >= 0) source[l] = static_cast<std::uint32_t>(moved);
    }
}

void Rmat::labels(std::int64_t first, std::span<std::int64_t> out) const {
    if (communities_ == 0) throw std::invalid_argument("plain R-MAT has no communities");
    if (first < 0 || first > num_nodes_ - static_cast<std::int64_t>(out.size())) throw std::out_of_range("nodes outside the graph");
    for (std::size_t k = 0; k < out.size(); ++k) {
        const std::uint64_t id = static_cast<std::uint64_t>(first) + k;
        out[k] = static_cast<std::int64_t>((permute_ ? permutation_.inverse(id) : id) % communities_);
    }
}

void Rmat::check_size(std::span<const std::int64_t> indptr) const {
    if (indptr.size() != static_cast<std::size_t>(num_nodes_) + 1)
        throw std::invalid_argument("indptr has " + std::to_string(indptr.size()) + " entries for " + std::to_string(num_nodes_) + " nodes");
}

void Rmat::count(std::span<std::int64_t> indptr, int threads) const {
    check_size(indptr);
    parallel_for(num_edges_, kPiece, threads, [&](std::int64_t begin, std::int64_t end, int) {
        std::uint32_t source[kLanes], target[kLanes];
        for (std::int64_t first = begin; first < end; first += kLanes) {
            edges(first, source, target);
            const auto lanes = std::min<std::int64_t>(kLanes, end - first);
            for (std::int64_t l = 0; l < lanes; ++l) {
                std::atomic_ref<std::int64_t>(indptr[std::size_t{target[l]} + 1])
                    .fetch_add(1, std::memory_order_relaxed);
            }
        }
    });
    for (std::size_t c = 1; c < indptr.size(); ++c) indptr[c] += indptr[c - 1];
}

template <typename Index>
void Rmat::fill_columns(std::span<const std::int64_t> indptr, std::int64_t first, std::int64_t last,
                        std::span<Index> out, std::span<std::uint32_t> used, int threads) const {
    check_size(indptr);
    if (first < 0 || last > num_nodes_ || first > last) throw std::out_of_range("columns outside the graph");
    const std::int64_t base = indptr[static_cast<std::size_t>(first)];
    if (static_cast<std::int64_t>(out.size()) != indptr[static_cast<std::size_t>(last)] - base ||
        static_cast<std::int64_t>(used.size()) != last - first) {
        throw std::invalid_argument("buffers do not fit the columns");
    }
    parallel_for(num_edges_, kPiece, threads, [&](std::int64_t begin, std::int64_t end, int) {
        std::uint32_t source[kLanes], target[kLanes];
        for (std::int64_t edge = begin; edge < end; edge += kLanes) {
            edges(edge, source, target);
            const auto lanes = std::min<std::int64_t>(kLanes, end - edge);
            for (std::int64_t l = 0; l < lanes; ++l) {
                const std::int64_t column = target[l];
                if (column < first || column >= last) continue;
                const std::uint32_t slot = std::atomic_ref<std::uint32_t>(used[static_cast<std::size_t>(column - first)])
                                               .fetch_add(1, std::memory_order_relaxed);
                const auto at = static_cast<std::size_t>(indptr[static_cast<std::size_t>(column)] - base + slot);
                if (at >= out.size()) throw std::invalid_argument("indptr is of another graph: column " + std::to_string(column) + " has more edges");
                out[at] = static_cast<Index>(source[l]);
            }
        }
    });
    const auto columns = indptr.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first) + 1);
    if (!std::is_sorted(columns.begin(), columns.end())) throw std::invalid_argument("indptr decreases");
    // Threads reach a column in any order; sorted, its list is the same for every number of threads.
    parallel_for(last - first, 4096, threads, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t c = first + begin; c < first + end; ++c) {
            std::sort(out.begin() + (indptr[static_cast<std::size_t>(c)] - base),
                      out.begin() + (indptr[static_cast<std::size_t>(c) + 1] - base));
        }
    });
}

void Rmat::fill(std::span<const std::int64_t> indptr, std::int64_t first, std::int64_t last,
                std::span<std::int32_t> out, std::span<std::uint32_t> used, int threads) const {
    fill_columns(indptr, first, last, out, used, threads);
}

void Rmat::fill(std::span<const std::int64_t> indptr, std::int64_t first, std::int64_t last,
                std::span<std::int64_t> out, std::span<std::uint32_t> used, int threads) const {
    fill_columns(indptr, first, last, out, used, threads);
}

}  // namespace outcore
