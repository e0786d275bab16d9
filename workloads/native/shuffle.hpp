// The order of an epoch's training nodes: a Philox-keyed Fisher-Yates shuffle, fixed for all versions.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "draws.hpp"

namespace outcore {

// Shuffles in place; a function of (seed, epoch, size). Its stream is (epoch, batch 0, hop 63, node 0) in draws.hpp.
template <class T>
void shuffle(std::span<T> values, std::uint64_t seed, std::uint64_t epoch) noexcept {
    PhiloxStream stream(Philox4x32(seed), stream_name(epoch, 0, kSeedPlanHop, 0));
    for (std::size_t last = values.size(); last > 1; --last) std::swap(values[last - 1], values[stream.below64(last)]);
}

}  // namespace outcore
