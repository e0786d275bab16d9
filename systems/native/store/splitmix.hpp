// SplitMix64 in counter form, for shuffles.
#pragma once

#include "base/types.hpp"

namespace outcore {

class SplitMix {
public:
    explicit SplitMix(u64 seed) : state_(seed) {}

    u64 next() {
        u64 mixed = state_ += 0x9E3779B97F4A7C15U;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
        return mixed ^ (mixed >> 31);
    }

    // Draws from [0, bound) without bias, by rejection.
    u64 below(u64 bound) {
        const u64 floor = (0 - bound) % bound;
        for (;;) {
            const auto wide = static_cast<Wide>(next()) * bound;
            if (static_cast<u64>(wide) >= floor) return static_cast<u64>(wide >> 64);
        }
    }

private:
    __extension__ typedef unsigned __int128 Wide;

    u64 state_;
};

}  // namespace outcore
