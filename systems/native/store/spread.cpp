// One thread fills buffers and queues writes of full ones, so that copies and writes overlap.
#include "store/spread.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace outcore {
namespace {

constexpr u64 page_bytes = DirectWriters::page_bytes;
constexpr u64 first_writes = 8;  // distinct lengths, so that equal regions do not fill at the same time

u64 padded(u64 bytes) { return up_to(bytes, page_bytes); }

DirectWritersOptions checked(DirectWritersOptions options) {
    if (options.buffer_bytes == 0 || options.buffer_bytes % page_bytes != 0 || options.writers == 0)
        throw std::invalid_argument("buffers are whole pages; there are writers");
    return options;
}

}  // namespace

std::vector<Spread::Bounds> Spread::regions_between(Ids bounds) {
    if (bounds.empty()) throw std::invalid_argument("regions have bounds");
    std::vector<Bounds> regions;
    for (size_t k = 0; k < bounds.size(); ++k) {
        if (bounds[k] < 0 || bounds[k] % static_cast<i64>(page_bytes) != 0 || (k > 0 && bounds[k] < bounds[k - 1]))
            throw std::invalid_argument("regions are whole pages, one behind the other");
        if (k > 0) regions.push_back({static_cast<u64>(bounds[k - 1]), static_cast<u64>(bounds[k])});
    }
    return regions;
}

Spread::Spread(const std::string& path, std::span<const Bounds> regions, const DirectWritersOptions& options,
               bool digest)
    : buffer_bytes_(options.buffer_bytes),
      writers_(path, checked(options), regions.size() + 2 * u64{options.writers}),
      digests_(digest ? regions.size() : 0) {
    for (size_t k = 0; k < regions.size(); ++k) {
        const auto [begin, end] = regions[k];
        const bool long_one = end - begin > buffer_bytes_;
        const u64 room = long_one ? padded(buffer_bytes_ * (1 + k % first_writes) / first_writes) : buffer_bytes_;
        regions_.push_back({begin, end, nullptr, 0, room});
    }
}

void Spread::flush(size_t index, u64 bytes) {
    Region& region = regions_[index];
    if (!digests_.empty()) digests_[index].update(region.buffer, bytes);
    writers_.write(region.buffer, bytes, region.at);
    ++writes_done_;
    bytes_written_ += bytes;
    region.at += bytes;
    region.buffer = nullptr;
    region.fill = 0;
    region.room = buffer_bytes_;
}

void Spread::append(size_t index, std::span<const std::byte> data) {
    if (index >= regions_.size()) throw std::out_of_range("a region that is not there");
    Region& region = regions_[index];
    if (data.size() > region.end - region.at - region.fill) throw std::out_of_range("a region is full");
    while (!data.empty()) {
        if (region.buffer == nullptr) region.buffer = writers_.take();
        const u64 part = std::min<u64>(data.size(), region.room - region.fill);
        std::memcpy(region.buffer + region.fill, data.data(), part);
        data = data.subspan(part);
        region.fill += part;
        if (region.fill == region.room) flush(index, region.fill);
    }
}

void Spread::rows(Table rows, std::span<const u8> regions) {
    if (rows.row_bytes == 0 || rows.num_rows != regions.size()) throw std::invalid_argument("a region for each row");
    for (size_t i = 0; i < regions.size(); ++i) append(regions[i], {rows.row(i), rows.row_bytes});
}

void Spread::close(size_t index) {
    Region& region = regions_.at(index);
    if (region.fill == 0) return;
    const u64 bytes = padded(region.fill);
    std::memset(region.buffer + region.fill, 0, bytes - region.fill);
    flush(index, bytes);
}

std::optional<IoFailure> Spread::finish() {
    for (size_t k = 0; k < regions_.size(); ++k) close(k);
    return writers_.finish();
}

}  // namespace outcore
