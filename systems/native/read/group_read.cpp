// Group reads: the plan's sorted rows are cut into groups; each group gets a slice of the staging buffer.
#include "read/group_read.hpp"

#include <cstring>
#include <stdexcept>

#include "base/refuse.hpp"

namespace outcore {
namespace {
constexpr u32 no_slice = UINT32_MAX;
}

GroupRead::GroupRead(Reader& reader, std::span<const i64> ids, std::span<std::byte> staging, u32 group_rows,
                     bool own_slices)
    : reader_(reader), claim_(reader.claim()), staging_(staging), group_rows_(group_rows) {
    if (group_rows == 0) throw std::invalid_argument("group_rows must be positive");
    const u64 slices = slices_ = staging.size() / reader.layout_.row_bytes / group_rows;
    if (slices == 0) throw std::invalid_argument("the staging buffer holds less than one group");
    reader.plan_.build(ids, reader.layout_, reader.options_.rule, group_rows);
    const size_t groups = (ids.size() + group_rows - 1) / group_rows;
    slice_of_group_.assign(groups, no_slice);
    rows_left_.assign(groups, group_rows);
    ready_.reserve(groups);
    if (ids.size() % group_rows != 0) rows_left_.back() = static_cast<u32>(ids.size() % group_rows);
    for (u64 i = own_slices ? slices : 0; i > 0; --i) free_slices_.push_back(static_cast<u32>(i - 1));
    reader.window_->begin(reader.plan_.requests());
}

std::byte* GroupRead::staging_row(u32 index) const {
    const u64 slice = slice_of_group_[index / group_rows_];
    return staging_.data() + (slice * group_rows_ + index % group_rows_) * reader_.layout_.row_bytes;
}

Target GroupRead::admit(const Request& request) {
    u32& slice = slice_of_group_[request.first_row / group_rows_];
    if (slice == no_slice) {
        if (free_slices_.empty()) return {Target::Kind::later};
        slice = free_slices_.back();
        free_slices_.pop_back();
    }
    const u64 row_bytes = reader_.layout_.row_bytes;
    if (request.num_rows == 1 && request.length == row_bytes) {
        std::byte* address = staging_row(request.first_row);
        if (reader_.direct_into(address, row_bytes)) return {Target::Kind::direct, address};
    }
    return {Target::Kind::bounce};
}

void GroupRead::deliver(const Request& request, const std::byte* bytes) {
    const RowLayout& layout = reader_.layout_;
    const auto rows = reader_.plan_.rows();
    for (u32 i = request.first_row; i < request.first_row + request.num_rows; ++i) {
        std::byte* to = staging_row(i);
        const std::byte* from = bytes + (layout.row_offset(rows[i].id) - request.offset);
        if (to != from) std::memcpy(to, from, layout.row_bytes);
    }
    const u32 group = request.first_row / group_rows_;
    rows_left_[group] -= request.num_rows;
    if (rows_left_[group] == 0) ready_.push_back(group);
}

GroupRead::State GroupRead::next(Group& group) {
    if (!claim_) return State::finished;
    Window& window = *reader_.window_;
    const auto admit_one = [this](const Request& request) { return admit(request); };
    const auto deliver_one = [this](const Request& request, const std::byte* bytes) { deliver(request, bytes); };
    // Even with a group in hand, refill the queue first, so that the device works while the caller copies.
    if (!window.finished()) window.step(false, admit_one, deliver_one);
    while (none_ready() && !window.finished()) {
        window.step(true, admit_one, deliver_one);
        if (none_ready() && window.idle() && !window.finished()) {
            // An idle window alone is not starved: the next request's group may already have a slice.
            const u32 group_after = window.upcoming().first_row / group_rows_;
            if (slice_of_group_[group_after] == no_slice && free_slices_.empty()) return State::starved;
        }
    }
    if (window.failure()) {
        while (!window.finished()) window.step(true, admit_one, deliver_one);
        return State::failed;
    }
    if (none_ready()) return State::finished;
    const u32 index = ready_[handed_out_++];
    const auto rows = reader_.plan_.rows();
    const size_t first = static_cast<size_t>(index) * group_rows_;
    group = {slice_of_group_[index], rows.subspan(first, std::min<size_t>(group_rows_, rows.size() - first))};
    return State::group;
}

void GroupRead::give_back(u32 slice) {
    if (slice >= slices_) refuse<std::out_of_range>("slice ", slice, " of a staging buffer of ", slices_);
    free_slices_.push_back(slice);
}

void GroupRead::close() {
    if (!claim_) return;
    reader_.window_->drain();
    reader_.window_->begin({});
    claim_.reset();
}

}  // namespace outcore
