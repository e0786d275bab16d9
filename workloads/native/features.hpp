// Feature rows by counter: row = centre of the node's group + noise, every number a pure function of (seed, node id,
// column), so that any row can be made again alone.
#pragma once

#include <cstdint>
#include <span>

namespace outcore {

// out[r, d] = centres[group[r], d] + noise * z(seed, ids[r], d), z about normal with mean 0 and variance 1.
// centres is [groups, dim]; out is [ids.size(), dim], float32, or float16 as its bit pattern.
void feature_rows(std::span<const float> centres, std::span<const std::int64_t> group,
                  std::span<const std::int64_t> ids, std::int64_t dim, std::uint64_t seed, float noise, int threads,
                  float* out);
void feature_rows(std::span<const float> centres, std::span<const std::int64_t> group,
                  std::span<const std::int64_t> ids, std::int64_t dim, std::uint64_t seed, float noise, int threads,
                  std::uint16_t* out);

// A class in [0, num_classes) for each of nodes [first, first + out.size()), by counter.
void random_labels(std::int64_t first, std::uint32_t num_classes, std::uint64_t seed, std::span<std::int64_t> out);

}  // namespace outcore
