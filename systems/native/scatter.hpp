// Copies of rows from table to table on several threads, without a contiguous copy in between (Ginex, Section 4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gather.hpp"

namespace outcore {

// Copies source[from[i]] to target[to[i]]. `to` has no row twice, the tables do not overlap. Returns false for an
// invalid row or lengths that differ; some rows may be copied then.
bool scatter(const Table& source, std::span<const std::int32_t> from, std::byte* target, std::size_t target_rows,
               std::span<const std::int32_t> to, unsigned threads);

// Table whose first rows lie on a device; rows for the device go to `staging`, one after the other.
struct SplitTarget {
    std::int32_t on_device;  // number of rows on the device
    std::byte* host;         // memory of the other rows
    std::size_t host_rows;
    std::byte* staging;
    std::size_t staging_rows;
};

// Copies row i of `source` to row to[i], from i = `begin` until `staging` is full; returns the first i not copied.
// `staged` becomes the device rows that `staging` holds. Throws std::out_of_range for an invalid row.
std::size_t split_rows(const Table& source, std::span<const std::int32_t> to, std::size_t begin, const SplitTarget& target,
                       std::vector<std::int64_t>& staged);

}  // namespace outcore
