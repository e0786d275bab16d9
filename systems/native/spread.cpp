// One thread fills buffers and queues writes of full ones, so that copies and writes overlap.
#include "spread.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace outcore {
namespace {

constexpr std::uint64_t page_bytes = DirectWriters::page_bytes;
constexpr std::uint64_t first_writes = 8;  // distinct lengths, so that equal regions do not fill at the same time

std::uint64_t padded(std::uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

const DirectWritersOptions& checked(const DirectWritersOptions& options, std::span<const std::int64_t> bounds) {
    if (options.buffer_bytes == 0 || options.buffer_bytes % page_bytes != 0 || options.writers == 0 || bounds.empty())
        throw std::invalid_argument("buffers are whole pages; there are writers and bounds");
    for (std::size_t k = 0; k < bounds.size(); ++k)
        if (bounds[k] < 0 || bounds[k] % static_cast<std::int64_t>(page_bytes) != 0 || (k > 0 && bounds[k] < bounds[k - 1]))
            throw std::invalid_argument("regions are whole pages, one behind the other");
    return options;
}

}  // namespace

Spread::Spread(const std::string& path, std::span<const std::int64_t> bounds, const DirectWritersOptions& options)
    : buffer_bytes_(options.buffer_bytes),
      writers_(path, checked(options, bounds), bounds.size() - 1 + 2 * std::uint64_t{options.writers}) {
    for (std::size_t k = 0; k + 1 < bounds.size(); ++k) {
        const auto begin = static_cast<std::uint64_t>(bounds[k]), end = static_cast<std::uint64_t>(bounds[k + 1]);
        const bool long_one = end - begin > buffer_bytes_;
        const std::uint64_t room = long_one ? padded(buffer_bytes_ * (1 + k % first_writes) / first_writes) : buffer_bytes_;
        regions_.push_back({begin, end, nullptr, 0, room});
    }
}

void Spread::flush(Region& region, std::uint64_t bytes) {
    writers_.write(region.buffer, bytes, region.at);
    ++writes_done_;
    bytes_written_ += bytes;
    region.at += bytes;
    region.buffer = nullptr;
    region.fill = 0;
    region.room = buffer_bytes_;
}

void Spread::append(std::size_t index, std::span<const std::byte> data) {
    if (index >= regions_.size()) throw std::out_of_range("a region that is not there");
    Region& region = regions_[index];
    if (data.size() > region.end - region.at - region.fill) throw std::out_of_range("a region is full");
    while (!data.empty()) {
        if (region.buffer == nullptr) region.buffer = writers_.take();
        const std::uint64_t part = std::min<std::uint64_t>(data.size(), region.room - region.fill);
        std::memcpy(region.buffer + region.fill, data.data(), part);
        data = data.subspan(part);
        region.fill += part;
        if (region.fill == region.room) flush(region, region.fill);
    }
}

void Spread::rows(std::span<const std::byte> data, std::uint64_t row_bytes, std::span<const std::uint8_t> regions) {
    if (row_bytes == 0 || data.size() != row_bytes * regions.size()) throw std::invalid_argument("a region for each row");
    for (std::size_t i = 0; i < regions.size(); ++i) append(regions[i], data.subspan(i * row_bytes, row_bytes));
}

template <class Index>
void Spread::lists(const EdgeRun<Index>& run, std::span<const std::uint8_t> region_of) {
    for_each_list(run, region_of.size(), [&](std::size_t node, std::span<const Index> sources) {
        append(region_of[node], std::as_bytes(sources));
    });
}

std::optional<WriteFailure> Spread::finish() {
    for (Region& region : regions_) {
        if (region.fill == 0) continue;
        const std::uint64_t bytes = padded(region.fill);
        std::memset(region.buffer + region.fill, 0, bytes - region.fill);
        flush(region, bytes);
    }
    return writers_.finish();
}

template void Spread::lists(const EdgeRun<std::int32_t>&, std::span<const std::uint8_t>);
template void Spread::lists(const EdgeRun<std::int64_t>&, std::span<const std::uint8_t>);

}  // namespace outcore
