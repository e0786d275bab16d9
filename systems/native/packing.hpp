// Batched packing (DiskGNN, Section 5.2): streams the feature table once in partitions of consecutive rows, and copies
// the rows of every chunk out of each partition.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "range_queue.hpp"

namespace outcore {

constexpr std::uint64_t pack_page = 4096;  // bytes; chunks begin at a page and are padded with zeros to the next

// Feature table in a file: row i begins at byte data_offset + i * row_bytes.
struct PackSource {
    std::string path;
    std::uint64_t data_offset;
    std::uint64_t num_rows;
    std::uint64_t row_bytes;
};

// Rows ids[begin, end) of the table, contiguous from byte `offset` of file `file`. The ids ascend (repeats allowed).
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
    // True: each chunk has a buffer of write_bytes (less for a shorter chunk), written when it is full.
    // False: each thread has one such buffer, and the rows of a chunk in a partition are written at once.
    bool hold = false;
    std::uint32_t threads = 8;     // each gathers and writes one chunk at a time; also the most writes in flight
    RangeQueueOptions read;
};

struct PackFailure {
    int code;             // errno; 0: the table ended too early
    bool writing;
    std::uint32_t file;   // number of the file, if `writing`
    std::uint64_t offset;
};

struct PackResult {
    std::uint64_t partitions = 0;  // partitions read: those with a wanted row
    std::uint64_t reads = 0;
    std::uint64_t bytes_read = 0;
    std::uint64_t writes = 0;
    std::uint64_t bytes_written = 0;
    std::vector<std::uint64_t> digests;  // XXH3 of each chunk with its padding; 0 for an empty one
    std::optional<PackFailure> failure;
};

// Returns the bytes of one partition's buffer, which is read in whole blocks.
std::uint64_t partition_buffer_bytes(std::uint64_t partition_rows, std::uint64_t row_bytes);

// Packs all chunks in one pass; the files exist and have space. Throws std::out_of_range for an id outside the table,
// std::invalid_argument for descending ids or invalid options, std::system_error where a file cannot be opened.
PackResult pack_pass(const PackSource& source, std::span<const std::string> files, std::span<const PackChunk> chunks,
                     std::span<const std::uint32_t> ids, const PackOptions& options);

// Ids in ascending order and their old positions: sorted[k] = ids[from[k]]. Stable and linear (radix sort).
struct Ascending {
    std::vector<std::uint32_t> sorted;
    std::vector<std::uint32_t> from;
};
Ascending ascending(std::span<const std::int64_t> ids);

}  // namespace outcore
