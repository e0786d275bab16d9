// A random permutation of [0, n) that is computed, not stored, and can be inverted: a Feistel network over the next
// power of two, walked until it falls into [0, n) again (Black and Rogaway, "Ciphers with Arbitrary Finite Domains").
#pragma once

#include <array>
#include <bit>

#include "base/philox.hpp"
#include "base/types.hpp"

namespace outcore {

class Permutation {
public:
    // n at most 2^32; `name0` and `name1` distinguish the permutations of one seed.
    Permutation(u64 n, u64 seed, u32 name0, u32 name1) noexcept : n_(n) {
        const int bits = n > 1 ? std::bit_width(n - 1) : 0;
        low_bits_ = (bits + 1) / 2;
        low_mask_ = mask(low_bits_);
        high_mask_ = mask(bits - low_bits_);
        const Philox4x32 philox(seed);
        for (u32 k = 0; k < 2; ++k) {
            const auto words = philox({k, name0, name1, static_cast<u32>(Purpose::kPermutation)});
            for (u32 w = 0; w < 4; ++w) keys_[4 * k + w] = words[w];
        }
    }

    u64 forward(u64 x) const noexcept { return walk<false>(x); }
    u64 inverse(u64 x) const noexcept { return walk<true>(x); }

    // forward() or inverse() of W values below n in place, the first walk as vector code in vector callers.
    template <bool Inverse, int W>
    OUTCORE_INLINE void walk_lanes(u32* x) const noexcept {
        alignas(64) u32 low[W], high[W];
        OUTCORE_LANES
        for (int l = 0; l < W; ++l) {
            low[l] = x[l] & low_mask_;
            high[l] = static_cast<u32>(u64{x[l]} >> low_bits_);
        }
        for (unsigned r = 0; r < kRounds; r += 2) {
            OUTCORE_LANES
            for (int l = 0; l < W; ++l) two_rounds<Inverse>(r, low[l], high[l]);
        }
        for (int l = 0; l < W; ++l) {
            const u64 y = (u64{high[l]} << low_bits_) | low[l];
            x[l] = static_cast<u32>(y < n_ ? y : walk<Inverse>(y));
        }
    }

private:
    static constexpr unsigned kRounds = 8;

    static constexpr u32 mask(int bits) noexcept { return static_cast<u32>((u64{1} << bits) - 1); }

    template <bool Inverse>
    u64 walk(u64 x) const noexcept {
        do {
            u32 low = static_cast<u32>(x) & low_mask_, high = static_cast<u32>(x >> low_bits_);
            for (unsigned r = 0; r < kRounds; r += 2) two_rounds<Inverse>(r, low, high);
            x = (u64{high} << low_bits_) | low;
        } while (x >= n_);
        return x;
    }

    // Rounds r and r + 1; the inverse undoes the last rounds first.
    template <bool Inverse>
    OUTCORE_INLINE void two_rounds(unsigned r, u32& low, u32& high) const noexcept {
        if constexpr (Inverse) {
            low ^= scramble(high, keys_[kRounds - 1 - r]) & low_mask_;
            high ^= scramble(low, keys_[kRounds - 2 - r]) & high_mask_;
        } else {
            high ^= scramble(low, keys_[r]) & high_mask_;
            low ^= scramble(high, keys_[r + 1]) & low_mask_;
        }
    }

    // Any function gives invertibility; this function spreads every input bit over the low bits that are kept.
    static constexpr u32 scramble(u32 x, u32 key) noexcept {
        x = (x + key) * 0x9E3779B1U;
        x ^= x >> 15;
        x *= 0x85EBCA77U;
        return x ^ (x >> 16);
    }

    u64 n_;
    int low_bits_ = 0;
    u32 low_mask_ = 0, high_mask_ = 0;
    std::array<u32, kRounds> keys_{};
};

}  // namespace outcore
