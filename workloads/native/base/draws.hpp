// Draw of the neighbours that a destination node keeps: uniform positions in its neighbour list, in ascending order.
//
// Counter layout. Every destination of every hop has its own Philox stream. The key is the run's seed; the counter's
// four 32-bit words are
//
//     word 0   number of the four-word group within the stream (so draw d of the stream is word d % 4 of group d / 4)
//     word 1   original node id, bits 0..31
//     word 2   original node id, bits 32..47 (low half) | epoch, 16 bits (high half)
//     word 3   batch, bits 0..25 | hop, 6 bits (bits 26..31)
//
// so that no two (epoch, batch, hop, node) share a stream, within: node ids < 2^48, epochs < 2^16, batches of an epoch
// over all ranks < 2^26, hops < 63, and 2^34 draws a stream. The seed plan uses hop 63 (`shuffle`). Draws are taken
// from a stream in order; a rejected draw (no modulo bias) takes the next one, so a batch is a function of its name alone.
// The layer-wise sampler takes the first two words of each candidate's stream (subgraph_samplers.cpp).
// The layout and the two algorithms below fix every batch ever recorded: changing them changes all digests.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "base/philox.hpp"
#include "base/types.hpp"

namespace outcore {

inline constexpr u64 kMaxNode = u64{1} << 48;
inline constexpr u64 kMaxEpoch = u64{1} << 16;
inline constexpr u64 kMaxBatch = u64{1} << 26;
inline constexpr u32 kSeedPlanHop = 63;

constexpr Philox4x32::Counter stream_name(u64 epoch, u64 batch, u32 hop, u64 node) noexcept {
    return {0, static_cast<u32>(node), static_cast<u32>(node >> 32) | (static_cast<u32>(epoch) << 16),
            static_cast<u32>(batch) | (hop << 26)};
}

class PositionDrawer {
public:
    // Number of positions of draw(). A fan-out < 0 takes the whole list, with replacement too.
    static constexpr u64 count(u64 degree, i64 fanout, bool replace) noexcept {
        const auto wanted = static_cast<u64>(fanout);
        if (fanout < 0 || (!replace && degree <= wanted)) return degree;
        return degree == 0 ? 0 : wanted;
    }

    // Draws `count` positions in [0, degree), ascending: independent with replacement, else a uniform subset
    // (Floyd's algorithm: for j = degree - count, ..., degree - 1 draw t in [0, j]; take t, or j if t is taken).
    // Only for lists not taken whole.
    void draw(PhiloxStream stream, u64 degree, size_t count, bool replace, u64* out) {
        if (replace) {
            // With replacement: independent positions.
            for (size_t i = 0; i < count; ++i) out[i] = stream.below64(degree);
            sort(out, count);
        } else if (degree <= 64) {
            // A list of at most 64 neighbours: the drawn set is a bit mask.
            draw_in_word(stream, static_cast<u32>(degree), count, out);
        } else if (count <= kScanned) {
            // Few positions of a longer list: scan the earlier draws for a repeat.
            for (size_t i = 0; i < count; ++i) {
                const u64 last = degree - count + i;
                const u64 position = stream.below64(last + 1);
                bool taken = false;
                for (size_t k = 0; k < i; ++k) taken |= out[k] == position;
                out[i] = taken ? last : position;
            }
            sort(out, count);
        } else {
            // Many positions: look up repeats in a hash set.
            draw_many(stream, degree, count, out);
        }
    }

private:
    static constexpr size_t kScanned = 32;
    static constexpr u64 kFree = ~u64{0};

    // A short list's chosen set fits a machine word, which also sorts it.
    static void draw_in_word(PhiloxStream& stream, u32 degree, size_t count, u64* out) noexcept {
        u64 chosen = 0;
        for (u32 last = degree - static_cast<u32>(count); last < degree; ++last) {
            const u64 position = u64{1} << stream.below(last + 1);
            chosen |= (chosen & position) != 0 ? u64{1} << last : position;
        }
        for (; chosen != 0; chosen &= chosen - 1) *out++ = static_cast<u64>(std::countr_zero(chosen));
    }

    void draw_many(PhiloxStream& stream, u64 degree, size_t count, u64* out) {
        const size_t slots = std::bit_ceil(2 * count);
        taken_.assign(slots, kFree);
        for (size_t i = 0; i < count; ++i) {
            const u64 last = degree - count + i;
            const u64 position = stream.below64(last + 1);
            out[i] = take(position) ? position : last;
            if (out[i] == last && position != last) take(last);
        }
        std::sort(out, out + count);
    }

    // Returns false if the position was taken before.
    bool take(u64 position) noexcept {
        const size_t mask = taken_.size() - 1;
        for (size_t slot = (position * 0x9E3779B97F4A7C15U >> 32) & mask;; slot = (slot + 1) & mask) {
            if (taken_[slot] == position) return false;
            if (taken_[slot] == kFree) {
                taken_[slot] = position;
                return true;
            }
        }
    }

    static void sort(u64* values, size_t count) noexcept {
        if (count > kScanned) return std::sort(values, values + count);
        for (size_t i = 1; i < count; ++i) {
            const u64 value = values[i];
            size_t k = i;
            for (; k > 0 && values[k - 1] > value; --k) values[k] = values[k - 1];
            values[k] = value;
        }
    }

    std::vector<u64> taken_;
};

inline constexpr int kDrawLanes = 32;
inline constexpr size_t kMaxLaneDraws = 32;  // the largest fan-out drawn this way

// The streams' counters and the lists' lengths, by lane.
struct LaneRequest {
    alignas(64) std::array<u32, kDrawLanes> word1{}, word2{}, word3{}, degree{};
};

// `positions[d][l]` is the d-th position of lane l, ascending. `uncertain[l]`: lane l may need a rejection.
struct LaneDraws {
    alignas(64) std::array<std::array<u32, kDrawLanes>, kMaxLaneDraws> positions;
    alignas(64) std::array<u32, kDrawLanes> uncertain;
};

// A neighbour list to draw from: longer than the number of draws, or non-empty with replacement.
struct DrawnList {
    u64 node, start, degree;
    size_t at;  // offset of its positions in the output
};

// Part of the stream names that all lists of a hop share.
struct DrawName {
    u64 seed, epoch, batch;
    u32 hop;
};

// Draws from lists of any length, side by side where the lanes allow it: the positions of PositionDrawer in a fraction
// of the time.
class LaneDrawer {
public:
    // Draws `count` positions of each of at most kDrawLanes lists into out[list.at] and following.
    void draw(std::span<const DrawnList> lists, const DrawName& name, size_t count, bool replace, u64* out);

private:
    LaneRequest request_;
    LaneDraws draws_;
    PositionDrawer drawer_;
};

}  // namespace outcore
