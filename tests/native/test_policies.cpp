// Miss curves of several threads equal those of one thread; one-pass curves equal those of single caches.
#include <numeric>
#include <random>

#include "cache/policies.hpp"
#include "check.hpp"

using namespace outcore;

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
    for (const Policy policy : {Policy::fifo, Policy::lfu, Policy::clock, Policy::sieve, Policy::s3fifo}) {
        CHECK(policy_misses(policy, trace, sizes, 1) == policy_misses(policy, trace, sizes, 4));
    }
    const auto lru = policy_misses(Policy::lru, trace, sizes, 2);
    const auto best = policy_misses(Policy::belady, trace, sizes, 2);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        CHECK(lru[i] ==
              static_cast<std::int64_t>(demand_misses(Policy::lru, trace, static_cast<std::uint64_t>(sizes[i]))));
        CHECK(best[i] <= lru[i]);
    }
    return 0;
}
