// The reader: opens the file, chooses between io_uring and the pread pool, and drives a window over a plan.
#include "read/reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "base/refuse.hpp"

namespace outcore {
namespace {

// Rows of at least this size are read straight into the caller's table; for smaller ones, pinning the caller's pages
// for each read costs more than the copy out of the registered bounce buffer.
constexpr u64 direct_from_bytes = 8192;
constexpr u64 most_offset = u64{1} << 62;

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

bool Reader::direct_into(const std::byte* address, u64 bytes) const {
    if (bytes < direct_from_bytes && registered_) return false;
    return reinterpret_cast<std::uintptr_t>(address) % file_.memory_alignment() == 0;
}

ReadResult Reader::read(std::span<const i64> ids, OutTable out, std::span<const i64> out_rows) {
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
    const u64 row_bytes = layout_.row_bytes;
    const auto destination = [&](u32 position) {
        const u64 row = out_rows.empty() ? position : static_cast<u64>(out_rows[position]);
        return out.data + row * row_bytes;
    };
    const auto admit = [&](const Request& request) {
        // A request of exactly one row can be read straight into its destination.
        if (request.num_rows == 1 && request.length == row_bytes) {
            std::byte* address = destination(rows[request.first_row].position);
            if (direct_into(address, row_bytes)) return Target{Target::Kind::direct, address};
        }
        return Target{Target::Kind::bounce};
    };
    const auto deliver = [&](const Request& request, const std::byte* bytes) {
        for (const RowRef& row : rows.subspan(request.first_row, request.num_rows)) {
            std::byte* to = destination(row.position);
            const std::byte* from = bytes + (layout_.row_offset(row.id) - request.offset);
            if (to != from) std::memcpy(to, from, row_bytes);
        }
    };
    window_->run(plan_.requests(), admit, deliver);
    return {plan_.counts(), window_->failure()};
}

ReadCounts Reader::counts_of(std::span<const i64> ids) const {
    ReadPlan plan;
    plan.build(ids, layout_, options_.rule);
    return plan.counts();
}

ReadResult Reader::read_range(u64 offset, std::span<std::byte> out, u32 request_bytes) {
    const FileRange range{offset, out.size(), out.data()};
    return read_ranges({&range, 1}, request_bytes);
}

ReadResult Reader::read_ranges(std::span<const FileRange> ranges, u32 request_bytes) {
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

}  // namespace outcore
