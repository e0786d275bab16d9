// The draws of sixteen destinations side by side: the same positions as PositionDrawer gives, in a fifth of the time.
#pragma once

#include <array>
#include <cstdint>

#include "philox.hpp"

namespace outcore {

inline constexpr int kDrawLanes = 32;
inline constexpr std::size_t kMaxLaneDraws = 32;  // the largest fan-out drawn this way

// What is drawn: `name[l]` is the stream's counter and `degree[l]` the list of lane l, more than `count` neighbours
// (at least one with replacement), fewer than 2^32.
struct LaneRequest {
    alignas(64) std::array<std::uint32_t, kDrawLanes> word1{}, word2{}, word3{}, degree{};
};

// `positions[d][l]` is the d-th position of lane l, ascending. A lane of which a draw may have to be refused has
// `uncertain[l]` set and must be drawn by PositionDrawer.
struct LaneDraws {
    alignas(64) std::array<std::array<std::uint32_t, kDrawLanes>, kMaxLaneDraws> positions;
    alignas(64) std::array<std::uint32_t, kDrawLanes> uncertain;
};

void draw_lanes(const LaneRequest& request, std::uint64_t seed, std::uint32_t count, bool replace, LaneDraws& draws);

}  // namespace outcore
