// Rows of one table into rows of another, on several threads: no contiguous copy in between (Ginex, section 4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gather.hpp"

namespace outcore {

// target[to[i]] = source[from[i]]. `to` has no row twice, the tables do not overlap. False where a row does not exist;
// some rows are copied then.
bool scatter(const Table& source, std::span<const std::int32_t> from, std::byte* target, std::size_t target_rows,
               std::span<const std::int32_t> to, unsigned threads);

}  // namespace outcore
