// Copies of rows between tables in memory or memory-mapped, in parallel, so that page faults overlap.
#pragma once

#include <utility>
#include <vector>

#include "base/types.hpp"

namespace outcore {

// Copies row rows[i] of `table` to row i of `out`. Returns the byte of the table at which the kernel raised SIGBUS (the
// mapped file was cut, or its device failed), or -1. in_order: copies in the order of the table instead of `rows`, so
// that one thread gets all rows of a page of a mapped file and faults once, and neighbouring pages are mapped together.
// Throws std::out_of_range for a row outside a table, std::invalid_argument for rows of different sizes.
i64 gather(Table table, Ids rows, OutTable out, unsigned threads, bool in_order);

// Copies source[from[i]] to target[to[i]]. `to` has no row twice, the tables no overlap. Throws std::invalid_argument
// for lengths or rows of different sizes, and std::out_of_range for an invalid row; some rows may be copied then.
void scatter(Table source, std::span<const i32> from, OutTable target, std::span<const i32> to, unsigned threads);

// Copies row i of `source` to row to[i] of a table whose first `on_device` rows lie on a device, the others in `host`,
// from i = `begin` until `staging` is full of rows for the device. Returns the first i not copied, and the device rows
// that `staging` holds. Throws std::out_of_range for an invalid row.
std::pair<size_t, std::vector<i64>> split_rows(Table source, std::span<const i32> to, size_t begin, i32 on_device,
                                               OutTable host, OutTable staging);

}  // namespace outcore
