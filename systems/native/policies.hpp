// Cache policies on a recorded trace of mini-batches: how many row accesses miss, by cache size.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace outcore {

// Row accesses of mini-batches, one after another; a row occurs at most once in a mini-batch.
struct AccessTrace {
    std::span<const std::uint32_t> rows;    // in [0, num_rows)
    std::span<const std::int64_t> begins;   // where each mini-batch begins, and the end
    std::uint32_t num_rows;

    std::size_t num_batches() const { return begins.size() - 1; }
};

enum class Policy { belady, lru, fifo, lfu, clock, sieve, s3fifo };

std::optional<Policy> policy_named(std::string_view name);

// Ids in [0, num_nodes) numbered anew in the order in which they first occur, and how many there are.
struct DenseRows {
    std::vector<std::uint32_t> rows;
    std::uint32_t num_rows;
};
DenseRows dense_rows(std::span<const std::int64_t> ids, std::uint64_t num_nodes);

// Throws std::invalid_argument unless `begins` ascends from 0 to the number of accesses and every row is in range.
void check(const AccessTrace& trace);

// Hits by the smallest cache that has them: [d] counts the accesses that hit in every cache of at least d rows and in no
// smaller one. One pass for all sizes, since both are stack algorithms (Mattson, Gecsei, Slutz and Traiger 1970).
std::vector<std::uint64_t> lru_hits(const AccessTrace& trace);
std::vector<std::uint64_t> belady_hits(const AccessTrace& trace);

// Misses of a cache of `capacity` rows that starts empty, for the policies that have no such pass (and for LRU).
std::uint64_t demand_misses(Policy policy, const AccessTrace& trace, std::uint64_t capacity);

// Misses for each of `sizes`, by one pass where there is one, else with up to `threads` sizes beside each other.
std::vector<std::int64_t> policy_misses(Policy policy, const AccessTrace& trace, std::span<const std::int64_t> sizes,
                                        unsigned threads);

}  // namespace outcore
