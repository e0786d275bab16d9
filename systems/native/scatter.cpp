// The parallel row copy between tables in memory.
#include "scatter.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include "task_pool.hpp"

namespace outcore {
namespace {

constexpr std::size_t ahead = 4;  // rows whose first lines are prefetched

}  // namespace

bool scatter(const Table& source, std::span<const std::int32_t> from, std::byte* target, std::size_t target_rows,
             std::span<const std::int32_t> to, unsigned threads) {
    if (from.size() != to.size()) return false;
    const std::size_t row_bytes = source.row_bytes;
    const std::size_t chunk = std::max<std::size_t>(16, (std::size_t{128} << 10) / std::max<std::size_t>(row_bytes, 1));
    std::atomic<bool> sound{true};
    TaskPool::shared().run(from.size(), chunk, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const auto row = static_cast<std::uint64_t>(static_cast<std::uint32_t>(from[i]));
            const auto place = static_cast<std::uint64_t>(static_cast<std::uint32_t>(to[i]));
            if (row >= source.num_rows || place >= target_rows) {
                sound = false;
                return;
            }
            if (i + ahead < end) {
                const auto soon = static_cast<std::uint64_t>(static_cast<std::uint32_t>(from[i + ahead]));
                if (soon < source.num_rows) __builtin_prefetch(source.data + soon * row_bytes);
            }
            std::memcpy(target + place * row_bytes, source.data + row * row_bytes, row_bytes);
        }
    });
    return sound;
}

std::size_t split_rows(const Table& source, std::span<const std::int32_t> to, std::size_t begin, const SplitTarget& target,
                       std::vector<std::int64_t>& staged) {
    if (to.size() > source.num_rows) throw std::out_of_range("there are more places than rows");
    const std::size_t row_bytes = source.row_bytes;
    staged.clear();
    for (std::size_t i = begin; i < to.size(); ++i) {
        const std::byte* row = source.data + i * row_bytes;
        if (to[i] < 0) throw std::out_of_range("row " + std::to_string(to[i]) + " of a split table");
        if (to[i] < target.on_device) {
            if (staged.size() == target.staging_rows) return i;
            std::memcpy(target.staging + staged.size() * row_bytes, row, row_bytes);
            staged.push_back(to[i]);
            continue;
        }
        const auto place = static_cast<std::size_t>(to[i] - target.on_device);
        if (place >= target.host_rows) throw std::out_of_range("row " + std::to_string(to[i]) + " of a split table");
        std::memcpy(target.host + place * row_bytes, row, row_bytes);
    }
    return to.size();
}

}  // namespace outcore
