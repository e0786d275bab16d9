// Cache policies on a recorded trace of mini-batches: misses by cache size.
#pragma once

#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace outcore {

// Row accesses of mini-batches, one after another; a row occurs at most once in a mini-batch.
struct AccessTrace {
    std::span<const u32> rows;  // in [0, num_rows)
    Ids begins;                 // first access of each mini-batch, and the end
    u32 num_rows;

    size_t num_batches() const { return begins.size() - 1; }
    size_t begin(size_t batch) const { return static_cast<size_t>(begins[batch]); }
};

// Ids in [0, num_nodes) relabelled in the order of their first occurrence, and the number of distinct ids.
struct DenseRows {
    std::vector<u32> rows;
    u32 num_rows;
};
DenseRows dense_rows(Ids ids, u64 num_nodes);

// Counts the misses of a cache of `capacity` rows that starts empty.
using CountMisses = u64 (*)(const AccessTrace& trace, u64 capacity);
// Returns the count of "lru", "fifo", "lfu", "clock", "sieve" or "s3-fifo". Throws std::invalid_argument for another name.
CountMisses demand_policy(std::string_view name);

// Counts the misses for each of `sizes`: "belady" and "lru" in one pass, demand policies with up to `threads` sizes in
// parallel. Throws std::invalid_argument for another policy or an invalid trace.
std::vector<i64> policy_misses(std::string_view policy, const AccessTrace& trace, Ids sizes, unsigned threads);

}  // namespace outcore
