// MinHash by one sort of the ids, which puts equal ids together with their lists; counting sorts do the rest.
#include "store/minhash.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/offsets.hpp"
#include "store/packing.hpp"

namespace outcore {
namespace {

u64 splitmix(u64& state) {
    u64 z = (state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

// Draws a permutation of [0, count): rank[j] of list j. The bias of the remainder is below count / 2^64.
std::vector<u32> permutation(size_t count, u64& state) {
    std::vector<u32> rank(count);
    std::iota(rank.begin(), rank.end(), 0U);
    for (size_t i = count; i > 1; --i) std::swap(rank[i - 1], rank[splitmix(state) % i]);
    return rank;
}

}  // namespace

std::vector<i64> minhash_order(std::span<const i64> ids, std::span<const i64> offsets, u32 hashes, u64 seed) {
    check_offsets(offsets, ids.size(), "the lists of ids");
    const size_t num_lists = offsets.size() - 1;
    auto [sorted, list_of] = ascending(ids);
    {
        std::vector<u32> list_at(ids.size());
        for (size_t j = 0; j < num_lists; ++j) {
            std::fill(list_at.begin() + offsets[j], list_at.begin() + offsets[j + 1], static_cast<u32>(j));
        }
        for (auto& from : list_of) from = list_at[from];
    }
    std::vector<u32> unique;
    for (size_t i = 0; i < sorted.size(); ++i) {
        if (i == 0 || sorted[i] != sorted[i - 1]) unique.push_back(sorted[i]);
    }
    std::vector<u32> order(unique.size());
    std::iota(order.begin(), order.end(), 0U);
    std::vector<u32> next(unique.size());
    std::vector<u32> least(unique.size());
    u64 state = seed;
    std::vector<std::vector<u32>> ranks;
    ranks.reserve(hashes);
    for (u32 h = 0; h < hashes; ++h) ranks.push_back(permutation(num_lists, state));
    // Stable sorts from the last hash to the first: the first hash decides, ties go to the next one, then to the id.
    for (u32 h = hashes; h-- > 0;) {
        size_t row = 0;
        for (size_t i = 0; i < sorted.size(); ++row) {
            u32 best = UINT32_MAX;
            for (const u32 id = sorted[i]; i < sorted.size() && sorted[i] == id; ++i) {
                best = std::min(best, ranks[h][list_of[i]]);
            }
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

u64 minhash_bytes(u64 num_ids, u64 num_lists, u32 hashes) {
    // Upper bound: the sort's four arrays, of which two stay beside four for the unique ids and the result.
    return num_ids * (4 * sizeof(u32) + 4 * sizeof(u32) + sizeof(i64)) + num_lists * (hashes + 1) * sizeof(u32);
}

}  // namespace outcore
