// Draws for many destinations side by side: the positions of PositionDrawer in a fraction of the time.
#pragma once

#include <array>
#include <span>

#include "base/draws.hpp"
#include "base/types.hpp"

namespace outcore {

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

void draw_lanes(const LaneRequest& request, u64 seed, u32 count, bool replace, LaneDraws& draws);

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

// Draws from lists of any length, side by side where the lanes allow it.
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
