// The parallel row copy between tables in memory.
#include "read/scatter.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/team.hpp"

namespace outcore {
namespace {

constexpr size_t ahead = 4;  // rows whose first lines are prefetched

}  // namespace

bool scatter(const Table& source, std::span<const i32> from, const OutTable& target, std::span<const i32> to,
             unsigned threads) {
    if (from.size() != to.size()) return false;
    const size_t row_bytes = source.row_bytes;
    const size_t chunk = std::max<size_t>(16, (size_t{128} << 10) / std::max<size_t>(row_bytes, 1));
    std::atomic<bool> sound{true};
    parallel(from.size(), chunk, threads, [&](size_t begin, size_t end, int) {
        for (size_t i = begin; i < end; ++i) {
            const auto row = static_cast<u64>(static_cast<u32>(from[i]));
            const auto place = static_cast<u64>(static_cast<u32>(to[i]));
            if (row >= source.num_rows || place >= target.num_rows) {
                sound = false;
                return;
            }
            if (i + ahead < end) {
                const auto soon = static_cast<u64>(static_cast<u32>(from[i + ahead]));
                if (soon < source.num_rows) __builtin_prefetch(source.data + soon * row_bytes);
            }
            std::memcpy(target.row(place), source.row(row), row_bytes);
        }
    });
    return sound;
}

size_t split_rows(const Table& source, std::span<const i32> to, size_t begin, const SplitTarget& target,
                  std::vector<i64>& staged) {
    if (to.size() > source.num_rows) throw std::out_of_range("there are more places than rows");
    const size_t row_bytes = source.row_bytes;
    staged.clear();
    for (size_t i = begin; i < to.size(); ++i) {
        const std::byte* row = source.data + i * row_bytes;
        if (to[i] < 0) throw std::out_of_range("row " + std::to_string(to[i]) + " of a split table");
        if (to[i] < target.on_device) {
            if (staged.size() == target.staging.num_rows) return i;
            std::memcpy(target.staging.row(staged.size()), row, row_bytes);
            staged.push_back(to[i]);
            continue;
        }
        const auto place = static_cast<size_t>(to[i] - target.on_device);
        if (place >= target.host.num_rows)
            throw std::out_of_range("row " + std::to_string(to[i]) + " of a split table");
        std::memcpy(target.host.row(place), row, row_bytes);
    }
    return to.size();
}

}  // namespace outcore
