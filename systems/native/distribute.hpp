// Distribution of a table's rows to chunks of a file in one pass (distribution sweep: Aggarwal and Vitter 1988, section
// 5): reads the runs of blocks of each region that hold wanted rows, copies each row to the write buffers of its
// chunks, and writes full buffers to the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "piece_file.hpp"

namespace outcore {

struct DistributeTable {
    std::string path;
    std::uint64_t data_offset;  // row i at data_offset + i * row_bytes
    std::uint64_t num_rows;
    std::uint64_t row_bytes;
};

// Chunk of the rows ids[begin, end), ascending, from page-aligned `offset` of the file on, padded with zeros to a page.
struct DistributeChunk {
    std::uint64_t offset, begin, end;
};

struct DistributeOptions {
    std::uint32_t region_bytes = 1 << 20;  // of the table, read as one piece
    std::uint32_t regions = 8;             // regions in flight
    std::uint32_t depth = 32;
    std::uint64_t gap_bytes = 1 << 16;
    std::uint32_t buffer_bytes = 1 << 17;  // write buffer of each chunk: the longest write
    std::uint32_t writers = 4;             // writes in flight; adds two buffers each
    bool want_ring = true;
    bool need_ring = false;
};

struct DistributeFailure {
    int code;  // errno; 0: the table's file ended early
    bool writing;
    std::uint64_t offset;
};

struct DistributeResult {
    PieceReads reads;
    std::uint64_t writes = 0;
    std::uint64_t bytes_written = 0;
    std::vector<std::uint64_t> digests;  // XXH3 of each chunk with its padding; 0 for an empty one or after a failure
    std::optional<DistributeFailure> failure;
};

// Returns the memory in bytes that a pass over `chunks` chunks takes, without the ids.
std::uint64_t distribute_bytes(const DistributeOptions& options, std::uint64_t row_bytes, std::uint64_t chunks);

// Runs the pass; `file` must exist and may be longer than the chunks. Throws std::out_of_range, std::invalid_argument,
// std::system_error, and std::runtime_error once `stop` is true.
DistributeResult distribute(const DistributeTable& table, const std::string& file, std::span<const DistributeChunk> chunks,
                            std::span<const std::uint32_t> ids, const DistributeOptions& options, const std::atomic<bool>& stop);

}  // namespace outcore
