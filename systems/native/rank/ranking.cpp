// Degree counts of a streamed edge list.
#include "rank/ranking.hpp"

#include <algorithm>
#include <type_traits>

namespace outcore {

template <class Id, class Count>
bool count_ids(std::span<const Id> ids, std::span<Count> counts) {
    using Unsigned = std::make_unsigned_t<Id>;
    constexpr size_t block = 4096;  // ids; checked on their way into the first-level cache
    for (size_t begin = 0; begin < ids.size(); begin += block) {
        const auto part = ids.subspan(begin, std::min(block, ids.size() - begin));
        Unsigned top = 0;
        for (const Id id : part) top = std::max(top, static_cast<Unsigned>(id));
        if (top >= counts.size()) return false;
        for (const Id id : part) ++counts[static_cast<size_t>(id)];
    }
    return true;
}

template bool count_ids(std::span<const i32>, std::span<i32>);
template bool count_ids(std::span<const i32>, std::span<i64>);
template bool count_ids(std::span<const i64>, std::span<i32>);
template bool count_ids(std::span<const i64>, std::span<i64>);

}  // namespace outcore
