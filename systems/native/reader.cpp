// The reader: opens the file, chooses between io_uring and the pread pool, and drives a window over a plan.
#include "reader.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

#include "pread_pool.hpp"
#include "ring.hpp"

namespace outcore {
namespace {

// Rows of at least this size are read straight into the caller's table; for smaller ones, pinning the caller's pages
// for each read costs more than the copy out of the registered bounce buffer.
constexpr std::uint64_t direct_from_bytes = 8192;
constexpr std::uint64_t most_offset = std::uint64_t{1} << 62;

#ifdef OUTCORE_HAS_LIBURING
std::string memlock_limit() {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur >> 10) + " KiB";
}
#endif

}  // namespace

std::uint64_t Reader::default_buffer_bytes(std::uint64_t covering_bytes, std::uint64_t max_request_bytes,
                                           std::uint32_t depth, std::uint32_t block_bytes) {
    const std::uint64_t longest = Buddy::rounded(std::max(covering_bytes, max_request_bytes), block_bytes);
    return std::max<std::uint64_t>(2 * depth * Buddy::rounded(covering_bytes, block_bytes), 4 * longest);
}

Reader::Reader(const std::string& path, const ReaderOptions& options) : options_(options), file_(path) {
    if (options.depth == 0 || options.depth > 16384) throw std::invalid_argument("depth must be in [1, 16384]");
    check_table(options.data_offset, options.num_rows, options.row_bytes);
    const std::uint32_t block = std::max(file_.block_bytes(), options.granularity);
    layout_ = {options.data_offset, options.num_rows, options.row_bytes, file_.size(), block};
    const std::uint64_t covering = ReadPlan::covering_bytes(layout_);
    if (covering > (1U << 30)) throw std::invalid_argument("rows of more than 1 GiB");
    options_.rule.max_request_bytes = std::clamp<std::uint64_t>(options.rule.max_request_bytes / block * block, block, 1U << 30);
    const std::uint64_t longest = Buddy::rounded(std::max(covering, options_.rule.max_request_bytes), block);
    std::uint64_t bytes = options.buffer_bytes;
    if (bytes == 0) bytes = default_buffer_bytes(covering, options_.rule.max_request_bytes, options.depth, block);
    // The buffer's first run is the largest power of two in it: the longest request must fit there.
    if (std::bit_floor(bytes / block) * block < longest) {
        throw std::invalid_argument("buffer_bytes is " + std::to_string(bytes) + ", the longest request needs " +
                                    std::to_string(longest));
    }
    bounce_ = AlignedMemory((bytes + 4095) / 4096 * 4096);

    std::string reason = "asked for";
#ifdef OUTCORE_HAS_LIBURING
    if (options.want_ring) {
        try {
            auto ring = std::make_unique<Ring>(options.depth, file_.fd());
            mode_ = "io_uring unregistered (asked for)";
            if (options.register_buffers) {
                const int code = ring->register_bounce(bounce_.data(), bounce_.size());
                registered_ = code == 0;
                mode_ = registered_ ? "io_uring registered"
                        : code == ENOMEM ? "io_uring unregistered (memlock limit " + memlock_limit() + ")"
                                         : "io_uring unregistered (" + std::generic_category().message(code) + ")";
            }
            backend_ = std::move(ring);
        } catch (const std::system_error& error) {
            reason = error.what();
        }
    }
#else
    if (options.want_ring) reason = "built without liburing";
#endif
    if (!backend_) {
        if (options.need_ring) throw std::runtime_error(reason);
        backend_ = std::make_unique<PreadPool>(std::min(options.threads, options.depth), options.depth, file_.fd());
        mode_ = "pread pool (" + reason + ")";
    }
    if (!file_.note().empty()) mode_ += "; " + file_.note();
    window_.emplace(*backend_, bounce_, block, options.depth, block);
}

Reader::Claim::Claim(Reader& reader) : reader_(reader) {
    if (reader_.busy_.exchange(true)) {
        throw std::logic_error("this reader is in use: give each thread its own, and finish one read before the next");
    }
}

bool Reader::direct_into(const std::byte* address, std::uint64_t bytes) const {
    if (bytes < direct_from_bytes && registered_) return false;
    return reinterpret_cast<std::uintptr_t>(address) % file_.memory_alignment() == 0;
}

ReadResult Reader::read(std::span<const std::int64_t> ids, OutTable out, std::span<const std::int64_t> out_rows) {
    const Claim claim(*this);
    if (!out_rows.empty()) {
        if (out_rows.size() != ids.size()) throw std::invalid_argument("out_rows and ids differ in length");
        for (const auto row : out_rows) {
            if (static_cast<std::uint64_t>(row) >= out.num_rows) throw std::out_of_range("out_rows points outside out");
        }
    } else if (ids.size() > out.num_rows) {
        throw std::out_of_range("out has fewer rows than ids");
    }
    plan_.build(ids, layout_, options_.rule);
    const auto rows = plan_.rows();
    const std::uint64_t row_bytes = layout_.row_bytes;
    const auto destination = [&](std::uint32_t position) {
        const std::uint64_t row = out_rows.empty() ? position : static_cast<std::uint64_t>(out_rows[position]);
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
    window_->begin(plan_.requests());
    while (!window_->finished()) window_->step(true, admit, deliver);
    return {plan_.counts(), window_->failure()};
}

ReadCounts Reader::counts_of(std::span<const std::int64_t> ids) const {
    ReadPlan plan;
    plan.build(ids, layout_, options_.rule);
    return plan.counts();
}

ReadResult Reader::read_range(std::uint64_t offset, std::span<std::byte> out, std::uint32_t request_bytes) {
    const FileRange range{offset, out.size(), out.data()};
    return read_ranges({&range, 1}, request_bytes);
}

ReadResult Reader::read_ranges(std::span<const FileRange> ranges, std::uint32_t request_bytes) {
    const Claim claim(*this);
    const std::uint64_t block = layout_.block_bytes;
    if (ranges.size() > UINT32_MAX) throw std::length_error("more than 2^32 ranges in one read");
    // Longest piece that the bounce buffer holds twice, for pieces that must go through it.
    const std::uint64_t most = std::max(block, std::bit_floor(bounce_.size() / block) * block / 2);
    const auto is_straight = [&](const FileRange& range) {
        return range.offset % block == 0 && reinterpret_cast<std::uintptr_t>(range.to) % file_.memory_alignment() == 0;
    };
    std::vector<Request> requests;
    ReadCounts counts;
    for (std::uint32_t index = 0; index < ranges.size(); ++index) {
        const FileRange& range = ranges[index];
        if (range.bytes == 0) continue;
        if (range.offset > most_offset || range.bytes > most_offset)
            throw std::invalid_argument("a range of " + std::to_string(range.bytes) + " bytes from byte " + std::to_string(range.offset) +
                                        " on lies in no file");
        const bool straight = is_straight(range);
        std::uint64_t piece = std::max<std::uint64_t>(request_bytes / block * block, block);
        if (!straight) piece = std::min(piece, most);
        const std::uint64_t stop = range.offset + range.bytes;
        for (std::uint64_t at = range.offset / block * block, end = 0; at < stop; at = end) {
            end = std::min(at + piece, stop);
            // A piece that does not end at a block goes through the bounce buffer: keep it to one block.
            if (straight && end % block != 0 && end - at > block) end = end / block * block;
            const std::uint64_t length = (end - at + block - 1) / block * block;
            // A range has no rows: `first_row` holds the number of the range.
            requests.push_back({at, static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(end - at), index, 0});
            ++counts.requests;
            counts.bytes_read += std::min(length, layout_.file_bytes > at ? layout_.file_bytes - at : 0);
            ++counts.requests_by_size[static_cast<std::uint32_t>(length)];
        }
        counts.bytes_useful += range.bytes;
    }
    const auto admit = [&](const Request& request) {
        const FileRange& range = ranges[request.first_row];
        if (request.length == request.need && is_straight(range)) {
            return Target{Target::Kind::direct, range.to + (request.offset - range.offset)};
        }
        return Target{Target::Kind::bounce};
    };
    const auto deliver = [&](const Request& request, const std::byte* bytes) {
        const FileRange& range = ranges[request.first_row];
        const std::uint64_t begin = std::max(request.offset, range.offset);
        std::byte* to = range.to + (begin - range.offset);
        const std::byte* from = bytes + (begin - request.offset);
        if (to != from) std::memcpy(to, from, request.offset + request.need - begin);
    };
    window_->begin(requests);
    while (!window_->finished()) window_->step(true, admit, deliver);
    const auto failure = window_->failure();
    window_->begin({});
    return {std::move(counts), failure};
}

}  // namespace outcore
