// Rows of a table to the chunks that want them, in one pass over the table: of each region the runs of blocks that hold
// wanted rows, each row to its chunks' write buffers, each buffer to the file when it is full.
// (Distribution sweep: Aggarwal and Vitter 1988, section 5.)
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

// Rows ids[begin, end) one after another from `offset` of the file on, a page's; padded with zeros to a page. They ascend.
struct DistributeChunk {
    std::uint64_t offset, begin, end;
};

struct DistributeOptions {
    std::uint32_t region_bytes = 1 << 20;  // of the table, read at a time
    std::uint32_t regions = 8;             // in flight
    std::uint32_t depth = 32;
    std::uint64_t gap_bytes = 1 << 16;
    std::uint32_t buffer_bytes = 1 << 17;  // of each chunk: the longest write
    std::uint32_t writers = 4;             // writes in flight, and twice as many buffers more
    bool want_ring = true;
    bool need_ring = false;
};

struct DistributeFailure {
    int code;  // errno; 0: the table ended
    bool writing;
    std::uint64_t offset;
};

struct DistributeResult {
    PieceReads reads;
    std::uint64_t writes = 0;
    std::uint64_t bytes_written = 0;
    std::vector<std::uint64_t> digests;  // XXH3 of each chunk with its padding; 0 of an empty one
    std::optional<DistributeFailure> failure;
};

// Bytes that a pass over so many chunks takes beside the ids.
std::uint64_t distribute_bytes(const DistributeOptions& options, std::uint64_t row_bytes, std::uint64_t chunks);

// The file exists and may be longer. Throws std::out_of_range, std::invalid_argument, std::system_error; std::runtime_error
// where `stop` became true.
DistributeResult distribute(const DistributeTable& table, const std::string& file, std::span<const DistributeChunk> chunks,
                            std::span<const std::uint32_t> ids, const DistributeOptions& options, const std::atomic<bool>& stop);

}  // namespace outcore
