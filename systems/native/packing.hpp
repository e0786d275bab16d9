// Batched packing (DiskGNN, Section 5.2): the feature table is streamed once in partitions of consecutive rows, and from each
// partition every chunk takes the rows it wants.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "range_queue.hpp"

namespace outcore {

constexpr std::uint64_t pack_page = 4096;  // chunks begin at multiples of it and are padded with zeros to one

// The table: row i at data_offset + i * row_bytes.
struct PackSource {
    std::string path;
    std::uint64_t data_offset;
    std::uint64_t num_rows;
    std::uint64_t row_bytes;
};

// Rows ids[begin, end) of the table, one after another from `offset` of file `file`. The ids ascend (repeats allowed).
struct PackChunk {
    std::uint32_t file;
    std::uint64_t offset;
    std::uint64_t begin;
    std::uint64_t end;
};

struct PackOptions {
    std::uint64_t partition_rows;
    std::uint32_t buffers = 2;     // partitions in memory: some are read while one is scattered
    std::uint64_t write_bytes;     // longest write, a multiple of a page
    // True: each chunk has a buffer of write_bytes (less if it is shorter), written when full, whatever a partition brings.
    // False: each thread has such a buffer, and what a partition brings to a chunk is written at once.
    bool hold = false;
    std::uint32_t threads = 8;     // each gathers rows for one chunk and writes them: so many writes are in flight
    RangeQueueOptions read;
};

struct PackFailure {
    int code;             // errno; 0: the table ended too early
    bool writing;
    std::uint32_t file;   // where `writing`
    std::uint64_t offset;
};

struct PackResult {
    std::uint64_t partitions = 0;  // read
    std::uint64_t reads = 0;
    std::uint64_t bytes_read = 0;
    std::uint64_t writes = 0;
    std::uint64_t bytes_written = 0;
    std::vector<std::uint64_t> digests;  // XXH3 of each chunk with its padding; 0 for an empty one
    std::optional<PackFailure> failure;
};

// Bytes of the memory of one partition, which is read from block to block.
std::uint64_t partition_buffer_bytes(std::uint64_t partition_rows, std::uint64_t row_bytes);

// One pass. The files exist and have room. Throws std::out_of_range for an id outside the table, std::invalid_argument
// where ids descend, std::system_error where a file cannot be opened.
PackResult pack_pass(const PackSource& source, std::span<const std::string> files, std::span<const PackChunk> chunks,
                     std::span<const std::uint32_t> ids, const PackOptions& options);

// ids in ascending order (equal ones as they stood) and where each came from: sorted[k] = ids[from[k]]. Linear: radix sort.
struct Ascending {
    std::vector<std::uint32_t> sorted;
    std::vector<std::uint32_t> from;
};
Ascending ascending(std::span<const std::int64_t> ids);

}  // namespace outcore
