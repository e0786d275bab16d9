// Page cache of a file: bytes held, eviction, and madvise of mapped memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace outcore {

// Returns the bytes of the file in the page cache: cachestat(2), else mincore(2). Throws std::system_error.
std::uint64_t resident_bytes(const std::string& path);

// Writes dirty pages out and drops the file's clean ones; returns the bytes still resident (pages that a process has
// mapped cannot be dropped). Throws std::system_error.
std::uint64_t evict(const std::string& path);

// Calls madvise on every page that overlaps [data, data + bytes). Throws std::system_error.
void advise(const void* data, std::size_t bytes, int advice);

}  // namespace outcore
