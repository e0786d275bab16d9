// The order of an epoch's training nodes: a Philox-keyed Fisher-Yates shuffle, fixed for all versions.
#pragma once

#include <span>
#include <utility>

#include "base/draws.hpp"
#include "base/types.hpp"

namespace outcore {

// Shuffles in place; a function of (seed, epoch, size). Its stream is (epoch, batch 0, hop 63, node 0) in draws.hpp.
template <class T>
void shuffle(std::span<T> values, u64 seed, u64 epoch) noexcept {
    PhiloxStream stream(Philox4x32(seed), stream_name(epoch, 0, kSeedPlanHop, 0));
    for (size_t last = values.size(); last > 1; --last) std::swap(values[last - 1], values[stream.below64(last)]);
}

}  // namespace outcore
