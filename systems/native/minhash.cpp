// MinHash by one sort of the ids, which puts equal ids together with their lists; counting sorts do the rest.
#include "minhash.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "offsets.hpp"
#include "packing.hpp"

namespace outcore {
namespace {

std::uint64_t splitmix(std::uint64_t& state) {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

// Draws a permutation of [0, count): rank[j] of list j. The bias of the remainder is below count / 2^64.
std::vector<std::uint32_t> permutation(std::size_t count, std::uint64_t& state) {
    std::vector<std::uint32_t> rank(count);
    std::iota(rank.begin(), rank.end(), 0U);
    for (std::size_t i = count; i > 1; --i) std::swap(rank[i - 1], rank[splitmix(state) % i]);
    return rank;
}

}  // namespace

std::vector<std::int64_t> minhash_order(std::span<const std::int64_t> ids, std::span<const std::int64_t> offsets,
                                        std::uint32_t hashes, std::uint64_t seed) {
    check_offsets(offsets, ids.size(), "the lists of ids");
    const std::size_t num_lists = offsets.size() - 1;
    auto [sorted, list_of] = ascending(ids);
    {
        std::vector<std::uint32_t> list_at(ids.size());
        for (std::size_t j = 0; j < num_lists; ++j) {
            std::fill(list_at.begin() + offsets[j], list_at.begin() + offsets[j + 1], static_cast<std::uint32_t>(j));
        }
        for (auto& from : list_of) from = list_at[from];
    }
    std::vector<std::uint32_t> unique;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        if (i == 0 || sorted[i] != sorted[i - 1]) unique.push_back(sorted[i]);
    }
    std::vector<std::uint32_t> order(unique.size());
    std::iota(order.begin(), order.end(), 0U);
    std::vector<std::uint32_t> next(unique.size());
    std::vector<std::uint32_t> least(unique.size());
    std::uint64_t state = seed;
    std::vector<std::vector<std::uint32_t>> ranks;
    for (std::uint32_t h = 0; h < hashes; ++h) ranks.push_back(permutation(num_lists, state));
    // Stable sorts from the last hash to the first: the first hash decides, ties go to the next one, then to the id.
    for (std::uint32_t h = hashes; h-- > 0;) {
        std::size_t row = 0;
        for (std::size_t i = 0; i < sorted.size(); ++row) {
            std::uint32_t best = UINT32_MAX;
            for (const std::uint32_t id = sorted[i]; i < sorted.size() && sorted[i] == id; ++i) {
                best = std::min(best, ranks[h][list_of[i]]);
            }
            least[row] = best;
        }
        std::vector<std::uint32_t> begin(num_lists + 1, 0);
        for (const auto value : least) ++begin[value + 1];
        std::partial_sum(begin.begin(), begin.end(), begin.begin());
        for (const auto index : order) next[begin[least[index]]++] = index;
        order.swap(next);
    }
    std::vector<std::int64_t> result(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) result[i] = unique[order[i]];
    return result;
}

std::uint64_t minhash_bytes(std::uint64_t num_ids, std::uint64_t num_lists, std::uint32_t hashes) {
    // Upper bound: the sort's four arrays, of which two stay beside four for the unique ids and the result.
    return num_ids * (4 * sizeof(std::uint32_t) + 4 * sizeof(std::uint32_t) + sizeof(std::int64_t)) +
           num_lists * (hashes + 1) * sizeof(std::uint32_t);
}

}  // namespace outcore
