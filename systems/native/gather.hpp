// Copies rows of a table in memory or memory-mapped, in parallel, so that page faults overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcore {

struct Table {
    const std::byte* data;
    std::uint64_t num_rows;
    std::uint64_t row_bytes;
};

// Copies row rows[i] of `table` to out + i * row_bytes. Returns the byte of the table at which the kernel raised SIGBUS
// (the mapped file was cut, or its device failed), or -1. Throws std::out_of_range for a row outside the table.
// in_order: copies in the order of the table instead of `rows`. For a mapped file: one thread gets all rows of a page
// and faults once, and neighbouring pages are mapped together.
std::int64_t gather(const Table& table, std::span<const std::int64_t> rows, std::byte* out, unsigned threads,
                    bool in_order = false);

}  // namespace outcore
