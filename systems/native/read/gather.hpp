// Copies rows of a table in memory or memory-mapped, in parallel, so that page faults overlap.
#pragma once

#include <span>

#include "base/types.hpp"

namespace outcore {

// Copies row rows[i] of `table` to out + i * row_bytes. Returns the byte of the table at which the kernel raised SIGBUS
// (the mapped file was cut, or its device failed), or -1. Throws std::out_of_range for a row outside the table.
// in_order: copies in the order of the table instead of `rows`. For a mapped file: one thread gets all rows of a page
// and faults once, and neighbouring pages are mapped together.
i64 gather(const Table& table, std::span<const i64> rows, std::byte* out, unsigned threads, bool in_order = false);

}  // namespace outcore
