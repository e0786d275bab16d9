// Cache policies on a recorded trace of mini-batches: misses by cache size.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace outcore {

// Row accesses of mini-batches, one after another; a row occurs at most once in a mini-batch.
struct AccessTrace {
    std::span<const u32> rows;    // in [0, num_rows)
    std::span<const i64> begins;  // first access of each mini-batch, and the end
    u32 num_rows;

    size_t num_batches() const { return begins.size() - 1; }
};

enum class Policy { belady, lru, fifo, lfu, clock, sieve, s3fifo };  // in the order of `policy_named`

std::optional<Policy> policy_named(std::string_view name);

// Ids in [0, num_nodes) relabelled in the order of their first occurrence, and the number of distinct ids.
struct DenseRows {
    std::vector<u32> rows;
    u32 num_rows;
};
DenseRows dense_rows(std::span<const i64> ids, u64 num_nodes);

// Throws std::invalid_argument unless `begins` ascends from 0 to the number of accesses and every row is in range.
void check(const AccessTrace& trace);

// Counts hits by the smallest cache that has them: element d has the accesses that hit in caches of d rows or more and
// in no smaller one. One pass for all sizes, since both are stack algorithms (Mattson, Gecsei, Slutz and Traiger 1970).
std::vector<u64> lru_hits(const AccessTrace& trace);
std::vector<u64> belady_hits(const AccessTrace& trace);

// Counts the misses of a cache of `capacity` rows that starts empty, for policies without a one-pass count and for LRU.
u64 demand_misses(Policy policy, const AccessTrace& trace, u64 capacity);

// Counts the misses for each of `sizes`: Belady and LRU in one pass, else up to `threads` sizes in parallel.
std::vector<i64> policy_misses(Policy policy, const AccessTrace& trace, std::span<const i64> sizes, unsigned threads);

}  // namespace outcore
