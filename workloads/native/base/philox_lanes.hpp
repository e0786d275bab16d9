// Philox4x32-10 at W counters side by side, laid out so that the compiler makes vector code of it; the same words as
// Philox4x32 in philox.hpp gives for each counter.
#pragma once

#include <array>

#include "base/simd.hpp"
#include "base/types.hpp"

namespace outcore {

template <int W>
struct Lanes {
    alignas(64) std::array<u32, W> word0, word1, word2, word3;
};

template <int W>
OUTCORE_INLINE void philox_lanes(Lanes<W>& lanes, u64 seed) noexcept {
    u32 key0 = static_cast<u32>(seed), key1 = static_cast<u32>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        OUTCORE_LANES
        for (int l = 0; l < W; ++l) {
            const u64 product0 = u64{0xD2511F53} * lanes.word0[l];
            const u64 product1 = u64{0xCD9E8D57} * lanes.word2[l];
            lanes.word0[l] = static_cast<u32>(product1 >> 32) ^ lanes.word1[l] ^ key0;
            lanes.word2[l] = static_cast<u32>(product0 >> 32) ^ lanes.word3[l] ^ key1;
            lanes.word1[l] = static_cast<u32>(product1);
            lanes.word3[l] = static_cast<u32>(product0);
        }
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
}

// Last words of the counters that generation uses, so that no two purposes ever share a draw.
enum class Purpose : u32 {
    kPermutation = 0x7065726d,
    kRmat = 0x726d6174,
    kFractal = 0x66726163,
    kFeature = 0x66656174,
    kCommunity = 0x636f6d6d,
    kLabel = 0x6c61626c,
    kProbe = 0x70726f62,
};

}  // namespace outcore
