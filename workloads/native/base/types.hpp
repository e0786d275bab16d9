// Short names of the whole numbers, tables of rows in memory, and rounding up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcore {

using std::size_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

using Ids = std::span<const i64>;

constexpr u64 up_to(u64 bytes, u64 multiple) { return (bytes + multiple - 1) / multiple * multiple; }

// Rows of equal size, one behind the other.
template <class Byte>
struct RowsOf {
    Byte* data;
    u64 num_rows, row_bytes;

    Byte* row(u64 i) const { return data + i * row_bytes; }
};
using Table = RowsOf<const std::byte>;
using OutTable = RowsOf<std::byte>;

}  // namespace outcore
