// The reader: opens the file, chooses between io_uring and the pread pool, and drives a window over a plan.
#include "read/reader.hpp"

#include <cstring>

#include "base/refuse.hpp"

namespace outcore {
namespace {

// Rows of at least this size are read straight into the caller's table; for smaller ones, pinning the caller's pages
// for each read costs more than the copy out of the registered bounce buffer.
constexpr u64 direct_from_bytes = 8192;
constexpr u64 most_offset = u64{1} << 62;
constexpr u32 no_slice = UINT32_MAX;

// Bytes [offset, offset + bytes) of the file, to be read to `to`.
struct FileRange {
    u64 offset, bytes;
    std::byte* to;
};

}  // namespace

u64 Reader::default_buffer_bytes(u64 covering_bytes, u64 max_request_bytes, u32 depth, u32 block_bytes) {
    const u64 longest = Buddy::rounded(std::max(covering_bytes, max_request_bytes), block_bytes);
    return std::max<u64>(2 * depth * Buddy::rounded(covering_bytes, block_bytes), 4 * longest);
}

Reader::Reader(const std::string& path, const ReaderOptions& options) : options_(options), file_(path) {
    if (options.depth == 0 || options.depth > 16384) throw std::invalid_argument("depth must be in [1, 16384]");
    check_table(options.data_offset, options.num_rows, options.row_bytes);
    const u32 block = std::max(file_.block_bytes(), options.granularity);
    layout_ = {options.data_offset, options.num_rows, options.row_bytes, file_.size(), block};
    const u64 covering = ReadPlan::covering_bytes(layout_);
    if (covering > (1U << 30)) throw std::invalid_argument("rows of more than 1 GiB");
    options_.rule.max_request_bytes = std::clamp<u64>(options.rule.max_request_bytes / block * block, block, 1U << 30);
    const u64 longest = Buddy::rounded(std::max(covering, options_.rule.max_request_bytes), block);
    u64 bytes = options.buffer_bytes;
    if (bytes == 0) bytes = default_buffer_bytes(covering, options_.rule.max_request_bytes, options.depth, block);
    // The buffer's first run is the largest power of two in it: the longest request must fit there.
    if (std::bit_floor(bytes / block) * block < longest)
        refuse<std::invalid_argument>("buffer_bytes is ", bytes, ", the longest request needs ", longest);
    bounce_ = AlignedMemory(up_to(bytes, 4096));
    auto opened = open_backend(options.choice, file_.fd(), options.depth, options.threads,
                               options.register_buffers ? &bounce_ : nullptr);
    backend_ = std::move(opened.backend);
    registered_ = opened.registered;
    // The mode of a reader says whether its buffer is registered.
    mode_ = opened.mode == "io_uring" ? "io_uring unregistered (asked for)" : std::move(opened.mode);
    if (!file_.note().empty()) mode_ += "; " + file_.note();
    window_.emplace(*backend_, bounce_, block, options.depth, block);
}

Reader::Claim Reader::claim() {
    if (busy_.exchange(true))
        throw std::logic_error("this reader is in use: give each thread its own, and finish one read before the next");
    return Claim(&busy_);
}

template <class At>
Target Reader::target_of(const Request& request, const At& at) const {
    // A request of exactly one row can be read straight into its destination.
    if (request.num_rows == 1 && request.length == layout_.row_bytes &&
        (request.length >= direct_from_bytes || !registered_)) {
        std::byte* address = at(request.first_row);
        if (reinterpret_cast<std::uintptr_t>(address) % file_.memory_alignment() == 0)
            return {Target::Kind::direct, address};
    }
    return {Target::Kind::bounce};
}

template <class At>
void Reader::copy_rows(const Request& request, const std::byte* bytes, const At& at) const {
    const auto rows = plan_.rows();
    for (u32 i = request.first_row; i < request.first_row + request.num_rows; ++i) {
        std::byte* to = at(i);
        const std::byte* from = bytes + (layout_.row_offset(rows[i].id) - request.offset);
        if (to != from) std::memcpy(to, from, layout_.row_bytes);
    }
}

ReadResult Reader::read(Ids ids, OutTable out, Ids out_rows) {
    const Claim held = claim();
    if (!out_rows.empty()) {
        if (out_rows.size() != ids.size()) throw std::invalid_argument("out_rows and ids differ in length");
        for (const auto row : out_rows)
            if (static_cast<u64>(row) >= out.num_rows) throw std::out_of_range("out_rows points outside out");
    } else if (ids.size() > out.num_rows) {
        throw std::out_of_range("out has fewer rows than ids");
    }
    plan_.build(ids, layout_, options_.rule);
    const auto rows = plan_.rows();
    const auto at = [&](u32 i) {
        const u32 position = rows[i].position;
        const u64 row = out_rows.empty() ? position : static_cast<u64>(out_rows[position]);
        return out.data + row * layout_.row_bytes;
    };
    window_->run(
        plan_.requests(), [&](const Request& request) { return target_of(request, at); },
        [&](const Request& request, const std::byte* bytes) { copy_rows(request, bytes, at); });
    return {plan_.counts(), window_->failure()};
}

ReadCounts Reader::counts_of(Ids ids) const {
    ReadPlan plan;
    plan.build(ids, layout_, options_.rule);
    return plan.counts();
}

ReadResult Reader::read_range(u64 offset, std::span<std::byte> out, u32 request_bytes) {
    const i64 at = static_cast<i64>(offset), size = static_cast<i64>(out.size()), position = 0;
    return read_ranges({&at, 1}, {&size, 1}, {&position, 1}, out, request_bytes);
}

ReadResult Reader::read_ranges(Ids offsets, Ids sizes, Ids positions, std::span<std::byte> out, u32 request_bytes) {
    if (sizes.size() != offsets.size() || positions.size() != offsets.size())
        throw std::invalid_argument("offsets, sizes and positions differ in length");
    std::vector<FileRange> ranges;
    ranges.reserve(offsets.size());
    for (size_t i = 0; i < offsets.size(); ++i) {
        const auto bytes = static_cast<u64>(sizes[i]), position = static_cast<u64>(positions[i]);
        if (bytes > out.size() || position > out.size() - bytes)
            throw std::out_of_range("a range would be read past the end of out");
        ranges.push_back({static_cast<u64>(offsets[i]), bytes, out.data() + position});
    }
    const Claim held = claim();
    const u64 block = layout_.block_bytes;
    if (ranges.size() > UINT32_MAX) throw std::length_error("more than 2^32 ranges in one read");
    // Longest piece that the bounce buffer holds twice, for pieces that must go through it.
    const u64 most = std::max(block, std::bit_floor(bounce_.size() / block) * block / 2);
    const auto is_straight = [&](const FileRange& range) {
        return range.offset % block == 0 && reinterpret_cast<std::uintptr_t>(range.to) % file_.memory_alignment() == 0;
    };
    std::vector<Request> requests;
    ReadCounts counts;
    for (u32 index = 0; index < ranges.size(); ++index) {
        const FileRange& range = ranges[index];
        if (range.bytes == 0) continue;
        if (range.offset > most_offset || range.bytes > most_offset)
            refuse<std::invalid_argument>("a range of ", range.bytes, " bytes from byte ", range.offset,
                                          " on lies in no file");
        const bool straight = is_straight(range);
        u64 piece = std::max<u64>(request_bytes / block * block, block);
        if (!straight) piece = std::min(piece, most);
        const u64 stop = range.offset + range.bytes;
        for (u64 at = range.offset / block * block, end = 0; at < stop; at = end) {
            end = std::min(at + piece, stop);
            // A piece that does not end at a block goes through the bounce buffer: keep it to one block.
            if (straight && end % block != 0 && end - at > block) end = end / block * block;
            const u64 length = up_to(end - at, block);
            // A range has no rows: `first_row` holds the number of the range.
            requests.push_back({at, static_cast<u32>(length), static_cast<u32>(end - at), index, 0});
            counts.add(length, layout_.there(at, length));
        }
        counts.bytes_useful += range.bytes;
    }
    const auto admit = [&](const Request& request) {
        const FileRange& range = ranges[request.first_row];
        if (request.length == request.need && is_straight(range))
            return Target{Target::Kind::direct, range.to + (request.offset - range.offset)};
        return Target{Target::Kind::bounce};
    };
    const auto deliver = [&](const Request& request, const std::byte* bytes) {
        const FileRange& range = ranges[request.first_row];
        const u64 begin = std::max(request.offset, range.offset);
        std::byte* to = range.to + (begin - range.offset);
        const std::byte* from = bytes + (begin - request.offset);
        if (to != from) std::memcpy(to, from, request.offset + request.need - begin);
    };
    window_->run(requests, admit, deliver);
    const auto failure = window_->failure();
    window_->begin({});
    return {std::move(counts), failure};
}

// Group reads: the plan's sorted rows are cut into groups; each group gets a slice of the staging buffer.
GroupRead::GroupRead(Reader& reader, Ids ids, std::span<std::byte> staging, u32 group_rows, bool own_slices)
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

GroupRead::State GroupRead::next(Group& group) {
    if (!claim_) return State::finished;
    Window& window = *reader_.window_;
    const auto at = [&](u32 row) {
        const u64 slice = slice_of_group_[row / group_rows_];
        return staging_.data() + (slice * group_rows_ + row % group_rows_) * reader_.layout_.row_bytes;
    };
    const auto admit = [&](const Request& request) {
        u32& slice = slice_of_group_[request.first_row / group_rows_];
        if (slice == no_slice) {
            if (free_slices_.empty()) return Target{Target::Kind::later};
            slice = free_slices_.back();
            free_slices_.pop_back();
        }
        return reader_.target_of(request, at);
    };
    const auto deliver = [&](const Request& request, const std::byte* bytes) {
        reader_.copy_rows(request, bytes, at);
        const u32 group_of = request.first_row / group_rows_;
        rows_left_[group_of] -= request.num_rows;
        if (rows_left_[group_of] == 0) ready_.push_back(group_of);
    };
    // Even with a group in hand, refill the queue first, so that the device works while the caller copies.
    if (!window.finished()) window.step(false, admit, deliver);
    while (none_ready() && !window.finished()) {
        window.step(true, admit, deliver);
        if (none_ready() && window.idle() && !window.finished()) {
            // An idle window alone is not starved: the next request's group may already have a slice.
            const u32 group_after = window.upcoming().first_row / group_rows_;
            if (slice_of_group_[group_after] == no_slice && free_slices_.empty()) return State::starved;
        }
    }
    if (window.failure()) {
        while (!window.finished()) window.step(true, admit, deliver);
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
