// Batched packing (DiskGNN, Section 5.2): streams the feature table once in partitions of consecutive rows, and copies
// the rows of every chunk out of each partition.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/range_queue.hpp"

namespace outcore {

// Feature table in a file.
struct PackSource {
    std::string path;
    u64 data_offset, num_rows, row_bytes;

    u64 row_offset(u64 row) const { return data_offset + row * row_bytes; }
};

// Rows ids[begin, end) of the table, contiguous from byte `offset` of file `file`, a multiple of the page; padded with
// zeros to a page. The ids ascend (repeats allowed).
struct PackChunk {
    u32 file;
    u64 offset, begin, end;

    bool empty() const { return begin == end; }
};

// Throws std::invalid_argument for a table that no file can hold and for chunks outside their ids or `files` files.
void check_chunks(const PackSource& source, size_t files, std::span<const PackChunk> chunks, size_t ids);

struct PackOptions {
    u64 partition_rows;
    u32 buffers = 2;  // partitions in memory: some are read while one is scattered
    u64 write_bytes;  // longest write, a multiple of a page
    // True: each chunk has a buffer of write_bytes (less for a shorter chunk), written when it is full.
    // False: each thread has one such buffer, and the rows of a chunk in a partition are written at once.
    bool hold = false;
    u32 threads = 8;  // each gathers and writes one chunk at a time; also the most writes in flight
    RangeQueueOptions read;
};

struct PackFailure {
    int code;  // errno; 0: the table ended too early
    bool writing;
    u32 file;  // number of the file, if `writing`
    u64 offset;
};

struct PackResult {
    u64 partitions = 0;  // partitions read: those with a wanted row
    u64 reads = 0, bytes_read = 0, writes = 0, bytes_written = 0;
    std::vector<u64> digests;  // XXH3 of each chunk with its padding; 0 for an empty one
    std::optional<PackFailure> failure;
};

// Returns the bytes of one partition's buffer, which is read in whole blocks.
u64 partition_buffer_bytes(u64 partition_rows, u64 row_bytes);

// Packs all chunks in one pass; the files exist and have space. Throws std::out_of_range for an id outside the table,
// std::invalid_argument for descending ids or invalid options, std::system_error where a file cannot be opened.
PackResult pack_pass(const PackSource& source, std::span<const std::string> files, std::span<const PackChunk> chunks,
                     std::span<const u32> ids, const PackOptions& options);

}  // namespace outcore
