// The draws of many destinations side by side; every inner loop runs over the lanes and becomes vector code.
#include "base/draws.hpp"

namespace outcore {
namespace {

using Words = std::array<u32, kDrawLanes>;

// Puts the smaller of each lane's two positions into `low`.
OUTCORE_INLINE void order(Words& low, Words& high) noexcept {
    for (int l = 0; l < kDrawLanes; ++l) {
        const u32 a = low[l], b = high[l];
        low[l] = std::min(a, b);
        high[l] = std::max(a, b);
    }
}

OUTCORE_CLONES
void draw_lanes(const LaneRequest& request, u64 seed, u32 count, bool replace, LaneDraws& draws) {
    auto& positions = draws.positions;
    for (u32 group = 0; 4 * group < count; ++group) {
        Lanes<kDrawLanes> lanes;
        lanes.word0.fill(group);
        lanes.word1 = request.word1;
        lanes.word2 = request.word2;
        lanes.word3 = request.word3;
        philox_lanes(lanes, seed);
        positions[4 * group] = lanes.word0;
        positions[4 * group + 1] = lanes.word1;
        positions[4 * group + 2] = lanes.word2;
        positions[4 * group + 3] = lanes.word3;
    }
    Words uncertain{};
    for (u32 d = 0; d < count; ++d) {
        Words chosen, bound;
        for (int l = 0; l < kDrawLanes; ++l) {
            bound[l] = replace ? request.degree[l] : request.degree[l] - count + d + 1;
            const u64 product = u64{positions[d][l]} * bound[l];
            chosen[l] = static_cast<u32>(product >> 32);
            uncertain[l] |= static_cast<u32>(product) < bound[l] ? 1 : 0;
        }
        if (!replace) {
            // Floyd: a repeated position is replaced by the last position of the range.
            Words taken{};
            for (u32 e = 0; e < d; ++e)
                for (int l = 0; l < kDrawLanes; ++l) taken[l] |= positions[e][l] == chosen[l] ? 1 : 0;
            for (int l = 0; l < kDrawLanes; ++l) chosen[l] = taken[l] ? bound[l] - 1 : chosen[l];
        }
        positions[d] = chosen;
    }
    draws.uncertain = uncertain;
    // Batcher's odd-even merge sort, for any count.
    for (u32 p = 1; p < count; p *= 2)
        for (u32 k = p; k >= 1; k /= 2)
            for (u32 j = k % p; j + k < count; j += 2 * k)
                for (u32 i = 0; i < std::min(k, count - j - k); ++i)
                    if ((i + j) / (2 * p) == (i + j + k) / (2 * p)) order(positions[i + j], positions[i + j + k]);
}

}  // namespace

void LaneDrawer::draw(std::span<const DrawnList> lists, const DrawName& name, size_t count, bool replace, u64* out) {
    bool narrow = count <= kMaxLaneDraws;
    for (size_t l = 0; l < lists.size(); ++l) {
        const auto words = stream_name(name.epoch, name.batch, name.hop, lists[l].node);
        request_.word1[l] = words[1];
        request_.word2[l] = words[2];
        request_.word3[l] = words[3];
        request_.degree[l] = static_cast<u32>(lists[l].degree);
        narrow &= lists[l].degree <= 0xFFFFFFFFU;
    }
    if (narrow) draw_lanes(request_, name.seed, static_cast<u32>(count), replace, draws_);
    for (size_t l = 0; l < lists.size(); ++l) {
        u64* positions = out + lists[l].at;
        if (narrow && !draws_.uncertain[l]) {
            // The vector code drew the list without a rejected word.
            for (size_t d = 0; d < count; ++d) positions[d] = draws_.positions[d][l];
        } else {
            // Too many draws, a list beyond 32 bits, or a word that may be rejected: draw again from the stream.
            PhiloxStream stream(Philox4x32(name.seed), stream_name(name.epoch, name.batch, name.hop, lists[l].node));
            drawer_.draw(stream, lists[l].degree, count, replace, positions);
        }
    }
}

}  // namespace outcore
