// Distribution of a table's rows to chunks of a file in one pass (distribution sweep: Aggarwal and Vitter 1988, section
// 5): reads the runs of blocks of each region that hold wanted rows, copies each row to the write buffers of its
// chunks, and writes full buffers to the file.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/piece_file.hpp"
#include "store/packing.hpp"

namespace outcore {

struct DistributeOptions {
    u32 region_bytes = 1 << 20;  // of the table, read as one piece
    u32 regions = 8;             // regions in flight
    u32 depth = 32;
    u64 gap_bytes = 1 << 16;
    u32 buffer_bytes = 1 << 17;  // write buffer of each chunk: the longest write
    u32 writers = 4;             // writes in flight; adds two buffers each
    IoChoice choice;
    bool whole = false;  // read each region with a wanted row as a whole
};

// Rows that go to memory instead of a chunk, through `room`: `give` takes `count` rows, of ids[first] and after, away.
struct KeptRows {
    std::span<const u32> ids;  // ascending
    RowsOf<std::byte> room;
    std::function<void(u64 first, u64 count)> give;
};

struct DistributeFailure {
    int code;  // errno; 0: the table's file ended early
    bool writing;
    u64 offset;
};

struct DistributeResult {
    RequestCounts reads;
    u64 writes = 0, bytes_written = 0;
    std::vector<u64> digests;  // XXH3 of each chunk with its padding; 0 for an empty one or after a failure
    std::optional<DistributeFailure> failure;
};

// Returns the memory in bytes that a pass over `chunks` chunks takes, without the ids.
u64 distribute_bytes(const DistributeOptions& options, u64 row_bytes, u64 chunks);

// Runs the pass. `file`, that of every chunk, exists and may be longer; the ids of a chunk have no repeats. Throws
// std::out_of_range, std::invalid_argument, std::system_error, and std::runtime_error once `stop` is true.
DistributeResult distribute(const PackSource& table, const std::string& file, std::span<const PackChunk> chunks,
                            std::span<const u32> ids, const DistributeOptions& options, const std::atomic<bool>& stop,
                            const KeptRows& kept = {});

}  // namespace outcore
