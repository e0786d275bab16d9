// Reads rows of a table file, or ranges of it, with direct I/O. One reader serves one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aligned_memory.hpp"
#include "direct_file.hpp"
#include "io_backend.hpp"
#include "read_plan.hpp"
#include "window.hpp"

namespace outcore {

struct ReaderOptions {
    std::uint64_t data_offset = 0;
    std::uint64_t num_rows = 0;
    std::uint64_t row_bytes = 0;
    std::uint32_t depth = 256;
    std::uint32_t granularity = 0;  // 0: the device's logical block; else bytes, a power of two
    MergeRule rule;
    bool want_ring = true;       // false: the pread pool at once
    bool need_ring = false;      // true: no fallback, throw where io_uring is unavailable
    bool register_buffers = true;
    std::uint32_t threads = 32;  // threads of the pread pool
    std::uint64_t buffer_bytes = 0;  // 0: default_buffer_bytes
};

// Table of the caller: consecutive rows of `row_bytes`.
struct OutTable {
    std::byte* data;
    std::uint64_t num_rows;
};

// Bytes [offset, offset + bytes) of the file, to be read to `to`.
struct FileRange {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::byte* to;
};

struct ReadResult {
    ReadCounts counts;
    std::optional<ReadFailure> failure;
};

class Reader {
public:
    Reader(const std::string& path, const ReaderOptions& options);

    const std::string& mode() const { return mode_; }
    const RowLayout& layout() const { return layout_; }
    const DirectFile& file() const { return file_; }
    std::uint64_t memory_bytes() const { return bounce_.size(); }
    std::uint32_t depth() const { return options_.depth; }

    // Reads row ids[i] into out[out_rows[i]], or out[i] where out_rows is empty. Throws std::out_of_range for an
    // invalid row, std::invalid_argument for lengths that differ, std::logic_error (any read) while another read runs.
    ReadResult read(std::span<const std::int64_t> ids, OutTable out, std::span<const std::int64_t> out_rows);

    // Counts the requests and bytes of a `read` of these ids without reading; thread-safe. Throws std::out_of_range.
    ReadCounts counts_of(std::span<const std::int64_t> ids) const;

    // Reads bytes [offset, offset + out.size()) of the file.
    ReadResult read_range(std::uint64_t offset, std::span<std::byte> out, std::uint32_t request_bytes);

    // Reads ranges in requests of `request_bytes`, none across two ranges; the queue stays full over all ranges.
    ReadResult read_ranges(std::span<const FileRange> ranges, std::uint32_t request_bytes);

    // Returns the bounce bytes for rows that need at most `covering_bytes` each.
    static std::uint64_t default_buffer_bytes(std::uint64_t covering_bytes, std::uint64_t max_request_bytes,
                                              std::uint32_t depth, std::uint32_t block_bytes);

private:
    friend class GroupRead;

    bool direct_into(const std::byte* address, std::uint64_t bytes) const;
    // Claim of the reader for one read at a time; another thread may release it.
    class Claim {
    public:
        explicit Claim(Reader& reader);
        Claim(const Claim&) = delete;
        Claim& operator=(const Claim&) = delete;
        ~Claim() { reader_.busy_.store(false); }

    private:
        Reader& reader_;
    };

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
