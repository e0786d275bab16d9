// Rows of one table into rows of another, on several threads: no contiguous copy in between (Ginex, section 4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gather.hpp"

namespace outcore {

// target[to[i]] = source[from[i]]. `to` has no row twice, the tables do not overlap. False where a row does not exist;
// some rows are copied then.
bool scatter(const Table& source, std::span<const std::int32_t> from, std::byte* target, std::size_t target_rows,
               std::span<const std::int32_t> to, unsigned threads);

// A table of which the first rows lie elsewhere, on a device: rows on their way there go to `staging`, one after the other.
struct SplitTarget {
    std::int32_t on_device;  // rows
    std::byte* host;         // the others
    std::size_t host_rows;
    std::byte* staging;
    std::size_t staging_rows;
};

// Row i of `source` to row to[i], from `begin` on, until `staging` is full; returns where it stopped. `staged` becomes the
// rows of the device that `staging` is for. Throws std::out_of_range (a row does not exist).
std::size_t split_rows(const Table& source, std::span<const std::int32_t> to, std::size_t begin, const SplitTarget& target,
                       std::vector<std::int64_t>& staged);

}  // namespace outcore
