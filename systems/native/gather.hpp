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

// Row rows[i] of `table` to out + i * row_bytes. Returns the byte of the table at which the kernel raised SIGBUS (the
// mapped file was cut, or its device failed), or -1. Throws std::out_of_range.
//
// in_order: ask for the rows in the order of the table, whatever that of `rows`: for a mapped file, where rows of one page
// are then one thread's, which faults once, and neighbouring pages are mapped together.
std::int64_t gather(const Table& table, std::span<const std::int64_t> rows, std::byte* out, unsigned threads,
                    bool in_order = false);

}  // namespace outcore
