// Miss curves of several threads equal those of one thread; the one-pass curve of LRU equals that of single caches.
#include <algorithm>
#include <list>
#include <numeric>
#include <random>

#include "cache/policies.hpp"
#include "check.hpp"

using namespace outcore;

// Misses of an LRU cache of `size` rows, written as plainly as possible.
static std::int64_t lru_misses(const std::vector<std::uint32_t>& rows, std::int64_t size) {
    std::list<std::uint32_t> cache;  // latest first
    std::int64_t misses = 0;
    for (const std::uint32_t row : rows) {
        const auto found = std::find(cache.begin(), cache.end(), row);
        if (found == cache.end()) ++misses;
        else cache.erase(found);
        cache.push_front(row);
        if (static_cast<std::int64_t>(cache.size()) > size) cache.pop_back();
    }
    return misses;
}

int main() {
    constexpr std::uint32_t num_rows = 500;
    std::mt19937 random(3);
    std::vector<std::uint32_t> rows;
    std::vector<std::int64_t> begins{0};
    std::vector<std::uint32_t> names(num_rows);
    std::iota(names.begin(), names.end(), 0U);
    for (int batch = 0; batch < 200; ++batch) {
        for (std::uint32_t i = 0; i < 60; ++i) {  // the first few names are drawn most
            const std::uint32_t span = random() % 2 == 0 ? 80 : num_rows;
            std::swap(names[i], names[i + random() % (std::max(span, 61U) - i)]);
        }
        rows.insert(rows.end(), names.begin(), names.begin() + 60);
        begins.push_back(static_cast<std::int64_t>(rows.size()));
    }
    const AccessTrace trace{rows, begins, num_rows};
    const std::vector<std::int64_t> sizes{0, 1, 2, 7, 10, 33, 100, 250, 499, 500, 1000};
    for (const char* policy : {"fifo", "lfu", "clock", "sieve", "s3-fifo"}) {
        CHECK(policy_misses(policy, trace, sizes, 1) == policy_misses(policy, trace, sizes, 4));
    }
    const auto lru = policy_misses("lru", trace, sizes, 2);
    const auto best = policy_misses("belady", trace, sizes, 2);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        CHECK(lru[i] == lru_misses(rows, sizes[i]));
        CHECK(best[i] <= lru[i]);
    }
    return 0;
}
