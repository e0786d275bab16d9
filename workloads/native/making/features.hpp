// Feature rows by counter: row = centre of the node's group + noise, every number a pure function of (seed, node id,
// column), so that any row can be made again alone.
#pragma once

#include <span>

#include "base/types.hpp"

namespace outcore {

// out[r, d] = centres[group[r], d] + noise * z(seed, ids[r], d), z about normal with mean 0 and variance 1.
// centres is [groups, dim]; out is [ids.size(), dim], float32, or float16 as its bit pattern.
void feature_rows(std::span<const float> centres, std::span<const i64> group, std::span<const i64> ids, i64 dim,
                  u64 seed, float noise, int threads, float* out);
void feature_rows(std::span<const float> centres, std::span<const i64> group, std::span<const i64> ids, i64 dim,
                  u64 seed, float noise, int threads, u16* out);

// A class in [0, num_classes) for each of nodes [first, first + out.size()), by counter.
void random_labels(i64 first, u32 num_classes, u64 seed, std::span<i64> out);

}  // namespace outcore
