// Copies of feature rows and neighbour lists to their new places.
#include "store/reorder.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "base/team.hpp"

namespace outcore {

void scatter_rows(std::span<const std::byte> rows, u64 row_bytes, std::span<const i64> places, i64 first,
                  std::span<std::byte> out, unsigned threads) {
    const u64 room = out.size() / row_bytes;
    parallel(places.size(), 1024, threads, [&](size_t from, size_t to, int) {
        for (size_t i = from; i < to; ++i) {
            const auto place = static_cast<u64>(places[i] - first);
            if (place < room) std::memcpy(out.data() + place * row_bytes, rows.data() + i * row_bytes, row_bytes);
        }
    });
}

template <class Id>
bool relocate_edges(std::span<const Id> sources, std::span<const i64> indptr, i64 first_target, i64 first_edge,
                    std::span<const i64> places, std::span<const i64> new_indptr, i64 first, std::span<Id> out,
                    unsigned threads) {
    using Unsigned = std::make_unsigned_t<Id>;
    std::atomic<bool> sound{indptr.size() >= 2 || sources.empty()};
    if (!sound) return false;
    parallel(sources.size(), size_t{1} << 16, threads, [&](size_t from, size_t to, int) {
        const auto fail = [&] { sound.store(false, std::memory_order_relaxed); };
        i64 edge = first_edge + static_cast<i64>(from);
        const i64 stop = first_edge + static_cast<i64>(to);
        if (edge < indptr.front()) return fail();
        auto number = static_cast<size_t>(std::upper_bound(indptr.begin(), indptr.end(), edge) - indptr.begin() - 1);
        const Id* source = sources.data() + from;
        for (; edge < stop; ++number) {
            const size_t target = static_cast<size_t>(first_target) + number;
            if (number + 1 >= indptr.size() || target >= places.size() ||
                static_cast<u64>(places[target]) >= places.size())
                return fail();
            const i64 end = std::min(indptr[number + 1], stop);
            if (end <= edge) continue;
            const i64 begin = new_indptr[static_cast<size_t>(places[target])] + edge - indptr[number] - first;
            for (i64 i = 0; i < end - edge; ++i) {
                const auto old = static_cast<Unsigned>(*source++);
                if (old >= places.size()) return fail();
                const auto at = static_cast<u64>(begin + i);
                if (at < out.size()) out[at] = static_cast<Id>(places[old]);
            }
            edge = end;
        }
    });
    return sound;
}

template bool relocate_edges(std::span<const i32>, std::span<const i64>, i64, i64, std::span<const i64>,
                             std::span<const i64>, i64, std::span<i32>, unsigned);
template bool relocate_edges(std::span<const i64>, std::span<const i64>, i64, i64, std::span<const i64>,
                             std::span<const i64>, i64, std::span<i64>, unsigned);

}  // namespace outcore
