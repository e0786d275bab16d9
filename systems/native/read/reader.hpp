// Reads rows of a table file, or ranges of it, with direct I/O. One reader serves one thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_memory.hpp"
#include "base/types.hpp"
#include "io/backend.hpp"
#include "io/direct_file.hpp"
#include "read/read_plan.hpp"
#include "read/window.hpp"

namespace outcore {

struct ReaderOptions {
    u64 data_offset = 0;
    u64 num_rows = 0;
    u64 row_bytes = 0;
    u32 depth = 256;
    u32 granularity = 0;  // 0: the device's logical block; else bytes, a power of two
    MergeRule rule;
    IoChoice choice;
    bool register_buffers = true;
    u32 threads = 32;      // threads of the pread pool
    u64 buffer_bytes = 0;  // 0: default_buffer_bytes
};

// Bytes [offset, offset + bytes) of the file, to be read to `to`.
struct FileRange {
    u64 offset;
    u64 bytes;
    std::byte* to;
};

struct ReadResult {
    ReadCounts counts;
    std::optional<IoFailure> failure;
};

class Reader {
public:
    Reader(const std::string& path, const ReaderOptions& options);

    const std::string& mode() const { return mode_; }
    const RowLayout& layout() const { return layout_; }
    const DirectFile& file() const { return file_; }
    u64 memory_bytes() const { return bounce_.size(); }
    u32 depth() const { return options_.depth; }

    // Reads row ids[i] into out[out_rows[i]], or out[i] where out_rows is empty. Throws std::out_of_range for an
    // invalid row, std::invalid_argument for lengths that differ, std::logic_error (any read) while another read runs.
    ReadResult read(std::span<const i64> ids, OutTable out, std::span<const i64> out_rows);

    // Counts the requests and bytes of a `read` of these ids without reading; thread-safe. Throws std::out_of_range.
    ReadCounts counts_of(std::span<const i64> ids) const;

    // Reads bytes [offset, offset + out.size()) of the file.
    ReadResult read_range(u64 offset, std::span<std::byte> out, u32 request_bytes);

    // Reads ranges in requests of `request_bytes`, none across two ranges; the queue stays full over all ranges.
    ReadResult read_ranges(std::span<const FileRange> ranges, u32 request_bytes);

    // Returns the bounce bytes for rows that need at most `covering_bytes` each.
    static u64 default_buffer_bytes(u64 covering_bytes, u64 max_request_bytes, u32 depth, u32 block_bytes);

private:
    friend class GroupRead;

    bool direct_into(const std::byte* address, u64 bytes) const;
    // Claim of the reader for one read at a time; another thread may release it.
    struct Release {
        void operator()(std::atomic<bool>* busy) const { busy->store(false); }
    };
    using Claim = std::unique_ptr<std::atomic<bool>, Release>;
    Claim claim();

    ReaderOptions options_;
    DirectFile file_;
    RowLayout layout_;
    AlignedMemory bounce_;
    std::unique_ptr<IoBackend> backend_;
    std::string mode_;
    bool registered_ = false;
    std::optional<Window> window_;
    ReadPlan plan_;
    std::atomic<bool> busy_{false};
};

}  // namespace outcore
