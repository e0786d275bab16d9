// Reads rows of a table file, or ranges of it, with direct I/O.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/backend.hpp"
#include "io/direct_file.hpp"
#include "read/read_plan.hpp"
#include "read/window.hpp"

namespace outcore {

struct ReaderOptions {
    u64 data_offset = 0, num_rows = 0, row_bytes = 0;
    u32 depth = 256;
    u32 granularity = 0;  // 0: the device's logical block; else bytes, a power of two
    MergeRule rule;
    IoChoice choice;
    bool register_buffers = true;
    u32 threads = 32;      // threads of the pread pool
    u64 buffer_bytes = 0;  // 0: default_buffer_bytes
};

struct ReadResult {
    ReadCounts counts;
    std::optional<IoFailure> failure;
};

// One reader serves one thread at a time.
class Reader {
public:
    Reader(const std::string& path, const ReaderOptions& options);

    const std::string& mode() const { return mode_; }
    const RowLayout& layout() const { return layout_; }
    u64 memory_bytes() const { return bounce_.size(); }

    // Reads row ids[i] into out[out_rows[i]], or out[i] where out_rows is empty. Throws std::out_of_range for an
    // invalid row, std::invalid_argument for lengths that differ, std::logic_error (any read) while another read runs.
    ReadResult read(Ids ids, OutTable out, Ids out_rows);

    // Counts the requests and bytes of a `read` of these ids without reading; thread-safe. Throws std::out_of_range.
    ReadCounts counts_of(Ids ids) const;

    // Reads bytes [offset, offset + out.size()) of the file.
    ReadResult read_range(u64 offset, std::span<std::byte> out, u32 request_bytes);

    // Reads bytes [offsets[i], offsets[i] + sizes[i]) of the file to out[positions[i]], in requests of `request_bytes`,
    // none across two ranges; the queue stays full over all ranges. Throws std::out_of_range past the end of `out`.
    ReadResult read_ranges(Ids offsets, Ids sizes, Ids positions, std::span<std::byte> out, u32 request_bytes);

    // Returns the bounce bytes for rows that need at most `covering_bytes` each.
    static u64 default_buffer_bytes(u64 covering_bytes, u64 max_request_bytes, u32 depth, u32 block_bytes);

private:
    friend class GroupRead;

    // Target of a request, and copies of the rows that it read, where row i of the plan goes to at(i).
    template <class At>
    Target target_of(const Request& request, const At& at) const;
    template <class At>
    void copy_rows(const Request& request, const std::byte* bytes, const At& at) const;

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

// Reads rows into a bounded staging buffer and hands them over group by group while later reads are in flight: the
// first phase of GNNDrive's extraction for a device with its own memory (GNNDrive, Section 4.2).
class GroupRead {
public:
    struct Group {
        u32 slice;                     // the group's rows lie at staging + slice * group_rows * row_bytes
        std::span<const RowRef> rows;  // row k of the slice is feature row ids[rows[k].position]
    };
    enum class State { group, finished, failed, starved };  // starved: the caller holds every slice

    // Claims the reader until destruction. Throws std::out_of_range, std::invalid_argument, std::logic_error (in use).
    // own_slices: false starts without slices; `give_back` adds slices of a staging buffer shared with other reads.
    GroupRead(Reader& reader, Ids ids, std::span<std::byte> staging, u32 group_rows, bool own_slices = true);
    ~GroupRead() { close(); }

    // Waits for the next complete group, in the order of completion.
    State next(Group& group);
    // Frees a slice for later groups. Throws std::out_of_range for a slice outside the staging buffer.
    void give_back(u32 slice);
    // Waits for the reads in flight; afterwards nothing writes to the staging buffer.
    void close();

    const ReadCounts& counts() const { return reader_.plan_.counts(); }
    const std::optional<IoFailure>& failure() const { return reader_.window_->failure(); }

private:
    bool none_ready() const { return handed_out_ == ready_.size(); }

    Reader& reader_;
    Reader::Claim claim_;
    std::span<std::byte> staging_;
    u32 group_rows_;
    std::vector<u32> slice_of_group_, rows_left_, free_slices_;
    u64 slices_;
    std::vector<u32> ready_;  // complete groups in order; reserved for all, as `deliver` must not throw
    size_t handed_out_ = 0;   // groups of `ready_` that `next` returned
};

}  // namespace outcore
