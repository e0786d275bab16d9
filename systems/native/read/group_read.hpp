// Reads rows into a bounded staging buffer and hands them over group by group while later reads are in flight: the
// first phase of GNNDrive's extraction for a device with its own memory (GNNDrive, Section 4.2).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "read/reader.hpp"

namespace outcore {

class GroupRead {
public:
    struct Group {
        u32 slice;                     // the group's rows lie at staging + slice * group_rows * row_bytes
        std::span<const RowRef> rows;  // row k of the slice is feature row ids[rows[k].position]
    };
    enum class State { group, finished, failed, starved };  // starved: the caller holds every slice

    // Claims the reader until destruction. Throws std::out_of_range, std::invalid_argument, std::logic_error (in use).
    // own_slices: false starts without slices; `give_back` adds slices of a staging buffer shared with other reads.
    GroupRead(Reader& reader, std::span<const i64> ids, std::span<std::byte> staging, u32 group_rows,
              bool own_slices = true);
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
    Target admit(const Request& request);
    void deliver(const Request& request, const std::byte* bytes);
    std::byte* staging_row(u32 index) const;
    bool none_ready() const { return handed_out_ == ready_.size(); }

    Reader& reader_;
    Reader::Claim claim_;
    std::span<std::byte> staging_;
    u32 group_rows_;
    std::vector<u32> slice_of_group_;
    std::vector<u32> rows_left_;
    std::vector<u32> free_slices_;
    u64 slices_;
    std::vector<u32> ready_;  // complete groups in order; reserved for all, as `deliver` must not throw
    size_t handed_out_ = 0;   // groups of `ready_` that `next` returned
};

}  // namespace outcore
