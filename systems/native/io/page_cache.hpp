// Page cache of a file: bytes held, eviction, and madvise of mapped memory.
#pragma once

#include <string>

#include "base/types.hpp"

namespace outcore {

// Returns the bytes of the file in the page cache: cachestat(2), else mincore(2). Throws std::system_error.
u64 resident_bytes(const std::string& path);

// Writes dirty pages out and drops the file's clean ones; returns the bytes still resident (pages that a process has
// mapped cannot be dropped). Throws std::system_error.
u64 evict(const std::string& path);

// Calls madvise on every page that overlaps [data, data + bytes). Throws std::system_error.
void advise(const void* data, size_t bytes, int advice);

}  // namespace outcore
