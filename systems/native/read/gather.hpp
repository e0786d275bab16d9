// Copies of rows between tables in memory or memory-mapped, in parallel, so that page faults overlap.
#pragma once

#include <span>
#include <vector>

#include "base/types.hpp"

namespace outcore {

// Copies row rows[i] of `table` to out + i * row_bytes. Returns the byte of the table at which the kernel raised SIGBUS
// (the mapped file was cut, or its device failed), or -1. Throws std::out_of_range for a row outside the table.
// in_order: copies in the order of the table instead of `rows`. For a mapped file: one thread gets all rows of a page
// and faults once, and neighbouring pages are mapped together.
i64 gather(const Table& table, std::span<const i64> rows, std::byte* out, unsigned threads, bool in_order = false);

// Copies source[from[i]] to target[to[i]]. `to` has no row twice, the tables do not overlap. Returns false for an
// invalid row or lengths that differ; some rows may be copied then.
bool scatter(const Table& source, std::span<const i32> from, const OutTable& target, std::span<const i32> to,
             unsigned threads);

// Table whose first rows lie on a device; rows for the device go to `staging`, one after the other.
struct SplitTarget {
    i32 on_device;  // number of rows on the device
    OutTable host;  // the other rows
    OutTable staging;
};

// Copies row i of `source` to row to[i], from i = `begin` until `staging` is full; returns the first i not copied.
// `staged` becomes the device rows that `staging` holds. Throws std::out_of_range for an invalid row.
size_t split_rows(const Table& source, std::span<const i32> to, size_t begin, const SplitTarget& target,
                  std::vector<i64>& staged);

}  // namespace outcore
