// Short names of the whole numbers, tables of rows in memory, rounding up, and attributes of vector code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// Loops compiled for several instruction sets, of which loading the module chooses the best. Sanitizers do not support
// the load-time choice, and other processors lack these sets: both get plain code.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OUTCORE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OUTCORE_CLONES
#endif
// A body shared by cloned functions has to be inlined into each of them, or it stays plain code.
#define OUTCORE_INLINE inline __attribute__((always_inline))
// A loop over the lanes of one vector: unrolling would dissolve it before the vectoriser sees it.
#define OUTCORE_LANES _Pragma("GCC unroll 1")

namespace outcore {

using std::size_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

using Ids = std::span<const i64>;

constexpr u64 up_to(u64 bytes, u64 multiple) { return (bytes + multiple - 1) / multiple * multiple; }

// Rows of equal size, stored consecutively.
template <class Byte>
struct RowsOf {
    Byte* data;
    u64 num_rows, row_bytes;

    Byte* row(u64 i) const { return data + i * row_bytes; }
};
using Table = RowsOf<const std::byte>;
using OutTable = RowsOf<std::byte>;

}  // namespace outcore
