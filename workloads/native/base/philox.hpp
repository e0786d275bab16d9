// Philox4x32-10, the counter-based generator of all of Outcore's draws: a value is a pure function of a
// 64-bit key and a 128-bit counter, so it depends on no thread, no order and no earlier draw.
// (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 3.3.)
#pragma once

#include <array>

#include "base/types.hpp"

namespace outcore {

class Philox4x32 {
public:
    using Counter = std::array<u32, 4>;
    using Key = std::array<u32, 2>;

    explicit constexpr Philox4x32(u64 seed) noexcept : key_{static_cast<u32>(seed), static_cast<u32>(seed >> 32)} {}

    // The four words at one counter.
    constexpr Counter operator()(Counter counter) const noexcept {
        Key key = key_;
        for (int round = 0; round < 10; ++round) {
            const u64 product0 = u64{kMultiplier0} * counter[0];
            const u64 product1 = u64{kMultiplier1} * counter[2];
            counter = {static_cast<u32>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<u32>(product1),
                       static_cast<u32>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<u32>(product0)};
            key[0] += kWeyl0;
            key[1] += kWeyl1;
        }
        return counter;
    }

private:
    static constexpr u32 kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
    static constexpr u32 kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
    Key key_;
};

// The words at counters (0, ...), (1, ...), (2, ...), read one after the other, and whole numbers made of them.
// Word 0 of the counter is the stream's own; the other three name the stream.
class PhiloxStream {
public:
    constexpr PhiloxStream(const Philox4x32& generator, Philox4x32::Counter name) noexcept
        : generator_(generator), counter_(name) {
        counter_[0] = 0;
    }

    constexpr u32 next() noexcept {
        if (used_ == 4) {
            words_ = generator_(counter_);
            ++counter_[0];
            used_ = 0;
        }
        return words_[used_++];
    }

    constexpr u64 next64() noexcept {
        const u64 low = next();
        return low | (u64{next()} << 32);
    }

    // Uniform in [0, bound), bound >= 1, without modulo bias: a word whose product falls into the short last interval
    // is rejected and the stream's next word is taken (Lemire, "Fast Random Integer Generation in an Interval", 2019).
    constexpr u32 below(u32 bound) noexcept {
        u64 product = u64{next()} * bound;
        if (static_cast<u32>(product) < bound) {
            const u32 refused = (0U - bound) % bound;
            while (static_cast<u32>(product) < refused) product = u64{next()} * bound;
        }
        return static_cast<u32>(product >> 32);
    }

    // Uniform in [0, bound) for any bound: bounds up to 2^32 - 1 take one word a try, larger ones two.
    constexpr u64 below64(u64 bound) noexcept {
        if (bound <= 0xFFFFFFFFU) return below(static_cast<u32>(bound));
        Wide product = Wide{next64()} * bound;
        if (static_cast<u64>(product) < bound) {
            const u64 refused = (u64{0} - bound) % bound;
            while (static_cast<u64>(product) < refused) product = Wide{next64()} * bound;
        }
        return static_cast<u64>(product >> 64);
    }

private:
    __extension__ typedef unsigned __int128 Wide;

    Philox4x32 generator_;
    Philox4x32::Counter counter_;
    Philox4x32::Counter words_{};
    unsigned used_ = 4;
};

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

// Philox4x32-10 at W counters side by side, laid out so that the compiler makes vector code of it; the same words as
// Philox4x32 gives for each counter.
template <int W>
struct Lanes {
    alignas(64) std::array<u32, W> word0, word1, word2, word3;
};

// Counters that the generators of graphs and features take at a time.
inline constexpr int kLanes = 16;

// Sets the counters (first, first + 1, ..., word2, purpose), the first of 64 bits.
template <int W>
OUTCORE_INLINE void set_counters(Lanes<W>& lanes, u64 first, u32 word2, Purpose purpose) noexcept {
    OUTCORE_LANES
    for (int l = 0; l < W; ++l) {
        const u64 counter = first + static_cast<u64>(l);
        lanes.word0[l] = static_cast<u32>(counter);
        lanes.word1[l] = static_cast<u32>(counter >> 32);
        lanes.word2[l] = word2;
        lanes.word3[l] = static_cast<u32>(purpose);
    }
}

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

}  // namespace outcore
