// Copies of feature rows and neighbour lists to their new places.
#include "reorder.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "task_pool.hpp"

namespace outcore {

void scatter_rows(std::span<const std::byte> rows, std::uint64_t row_bytes, std::span<const std::int64_t> places,
                  std::int64_t first, std::span<std::byte> out, unsigned threads) {
    const std::uint64_t room = out.size() / row_bytes;
    TaskPool::shared().run(places.size(), 1024, threads, [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
            const auto place = static_cast<std::uint64_t>(places[i] - first);
            if (place < room) std::memcpy(out.data() + place * row_bytes, rows.data() + i * row_bytes, row_bytes);
        }
    });
}

template <class Id>
bool relocate_edges(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t first_target,
                    std::int64_t first_edge, std::span<const std::int64_t> places,
                    std::span<const std::int64_t> new_indptr, std::int64_t first, std::span<Id> out, unsigned threads) {
    using Unsigned = std::make_unsigned_t<Id>;
    std::atomic<bool> sound{indptr.size() >= 2 || sources.empty()};
    if (!sound) return false;
    TaskPool::shared().run(sources.size(), std::size_t{1} << 16, threads, [&](std::size_t from, std::size_t to) {
        const auto fail = [&] { sound.store(false, std::memory_order_relaxed); };
        std::int64_t edge = first_edge + static_cast<std::int64_t>(from);
        const std::int64_t stop = first_edge + static_cast<std::int64_t>(to);
        if (edge < indptr.front()) return fail();
        auto number = static_cast<std::size_t>(std::upper_bound(indptr.begin(), indptr.end(), edge) - indptr.begin() - 1);
        const Id* source = sources.data() + from;
        for (; edge < stop; ++number) {
            const std::size_t target = static_cast<std::size_t>(first_target) + number;
            if (number + 1 >= indptr.size() || target >= places.size() || static_cast<std::uint64_t>(places[target]) >= places.size())
                return fail();
            const std::int64_t end = std::min(indptr[number + 1], stop);
            if (end <= edge) continue;
            const std::int64_t begin = new_indptr[static_cast<std::size_t>(places[target])] + edge - indptr[number] - first;
            for (std::int64_t i = 0; i < end - edge; ++i) {
                const auto old = static_cast<Unsigned>(*source++);
                if (old >= places.size()) return fail();
                const auto at = static_cast<std::uint64_t>(begin + i);
                if (at < out.size()) out[at] = static_cast<Id>(places[old]);
            }
            edge = end;
        }
    });
    return sound;
}

template bool relocate_edges(std::span<const std::int32_t>, std::span<const std::int64_t>, std::int64_t, std::int64_t,
                             std::span<const std::int64_t>, std::span<const std::int64_t>, std::int64_t,
                             std::span<std::int32_t>, unsigned);
template bool relocate_edges(std::span<const std::int64_t>, std::span<const std::int64_t>, std::int64_t, std::int64_t,
                             std::span<const std::int64_t>, std::span<const std::int64_t>, std::int64_t,
                             std::span<std::int64_t>, unsigned);

}  // namespace outcore
