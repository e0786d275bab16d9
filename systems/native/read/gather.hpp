// Copies of rows between tables in memory or memory-mapped, in parallel, so that page faults overlap.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace outcore {

// Copies row rows[i] of `table` to out + i * row_bytes. Returns the byte of the table at which the kernel raised SIGBUS
// (the mapped file was cut, or its device failed), or -1. Throws std::out_of_range for a row outside the table.
// in_order: copies in the order of the table instead of `rows`. For a mapped file: one thread gets all rows of a page
// and faults once, and neighbouring pages are mapped together.
i64 gather(const Table& table, std::span<const i64> rows, std::byte* out, unsigned threads, bool in_order = false);

// Copies source[from[i]] to target[to[i]]. `to` has no row twice, the tables do not overlap. Throws std::invalid_argument
// for lengths or rows of different sizes, and std::out_of_range for an invalid row; some rows may be copied then.
void scatter(Table source, std::span<const i32> from, OutTable target, std::span<const i32> to, unsigned threads);

// Copies row i of `source` to row to[i] of a table whose first `on_device` rows lie on a device, and the others in `host`,
// from i = `begin` until `staging` is full of rows for the device. Returns the first i not copied, and the device rows
// that `staging` holds. Throws std::out_of_range for an invalid row.
std::pair<size_t, std::vector<i64>> split_rows(Table source, std::span<const i32> to, size_t begin, i32 on_device,
                                               OutTable host, OutTable staging);

}  // namespace outcore
