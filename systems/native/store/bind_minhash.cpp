// Order of a disk cache's rows that puts rows of the same mini-batches next to each other (DiskGNN, Algorithm 1).
// MinHash by one sort of the ids, which puts equal ids together with their lists; counting sorts do the rest.
#include <iterator>
#include <numeric>

#include "base/arrays.hpp"
#include "base/radix.hpp"
#include "base/refuse.hpp"
#include "store/splitmix.hpp"

namespace outcore {
namespace {

// Draws a permutation of [0, count): rank[j] of list j. The bias of the remainder is below count / 2^64.
std::vector<u32> permutation(size_t count, SplitMix& random) {
    std::vector<u32> rank(count);
    std::iota(rank.begin(), rank.end(), 0U);
    for (size_t i = count; i > 1; --i) std::swap(rank[i - 1], rank[random.next() % i]);
    return rank;
}

// Returns the ids in ascending order and their old positions. Stable and linear (radix sort).
std::tuple<std::vector<u32>, std::vector<u32>> ascending(Ids ids) {
    if (ids.size() > UINT32_MAX) throw std::length_error("more than 2^32 rows in one list");
    struct Entry {
        u32 id, from;
    };
    std::vector<Entry> entries(ids.size());
    u32 largest = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] > UINT32_MAX) refuse<std::out_of_range>("row ", ids[i]);
        entries[i] = {static_cast<u32>(ids[i]), static_cast<u32>(i)};
        largest = std::max(largest, entries[i].id);
    }
    if (std::vector<Entry> other; !std::ranges::is_sorted(ids))
        radix_sort(entries, other, largest, [](const Entry& entry) { return entry.id; });
    std::vector<u32> sorted(ids.size()), from(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
        sorted[i] = entries[i].id;
        from[i] = entries[i].from;
    }
    return {std::move(sorted), std::move(from)};
}

// Returns each id of the lists once, by (minhash 1, …, minhash `hashes`, id), in time linear in the ids. List j,
// ids[offsets[j], offsets[j + 1]), has the rows that mini-batch j of the segment accesses. A row's minhash is the least
// rank of its mini-batches under a random permutation of the segment's. Throws std::invalid_argument (offsets).
std::vector<i64> minhash_order(Ids ids, Ids offsets, u32 hashes, u64 seed) {
    check_offsets(offsets, ids.size(), "the lists of ids");
    const size_t num_lists = offsets.size() - 1;
    auto [sorted, list_of] = ascending(ids);
    {
        std::vector<u32> list_at(ids.size());
        for (size_t j = 0; j < num_lists; ++j)
            std::fill(list_at.begin() + offsets[j], list_at.begin() + offsets[j + 1], static_cast<u32>(j));
        for (auto& from : list_of) from = list_at[from];
    }
    std::vector<u32> unique;
    std::unique_copy(sorted.begin(), sorted.end(), std::back_inserter(unique));
    std::vector<u32> order(unique.size());
    std::iota(order.begin(), order.end(), 0U);
    std::vector<u32> next(unique.size()), least(unique.size());
    SplitMix random(seed);
    std::vector<std::vector<u32>> ranks;
    ranks.reserve(hashes);
    for (u32 h = 0; h < hashes; ++h) ranks.push_back(permutation(num_lists, random));
    // Stable sorts from the last hash to the first: the first hash decides, ties go to the next one, then to the id.
    for (u32 h = hashes; h-- > 0;) {
        size_t row = 0;
        for (size_t i = 0; i < sorted.size(); ++row) {
            u32 best = UINT32_MAX;
            for (const u32 id = sorted[i]; i < sorted.size() && sorted[i] == id; ++i)
                best = std::min(best, ranks[h][list_of[i]]);
            least[row] = best;
        }
        std::vector<u32> begin(num_lists + 1, 0);
        for (const auto value : least) ++begin[value + 1];
        std::partial_sum(begin.begin(), begin.end(), begin.begin());
        for (const auto index : order) next[begin[least[index]]++] = index;
        order.swap(next);
    }
    std::vector<i64> result(order.size());
    for (size_t i = 0; i < order.size(); ++i) result[i] = unique[order[i]];
    return result;
}

}  // namespace

void bind_minhash(nb::module_& m) {
    m.def("ascending", &ascending, "ids"_a, released(), "Returns the ids in ascending order and their old positions.");
    m.def("minhash_order", &minhash_order, "ids"_a, "offsets"_a, "hashes"_a, "seed"_a, released());
}

}  // namespace outcore
