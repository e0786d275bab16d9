// The live cache misses what the simulator counts, returns the rows asked for, and refuses rows that are not there.
#include "cache/demand/demand_cache.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "check.hpp"

using namespace outcore;

namespace {

constexpr u32 num_rows = 500;
constexpr const char* policies[] = {"lru", "fifo", "lfu", "clock", "sieve", "s3-fifo"};

// Mini-batches of 60 rows, of which the first few rows are drawn most.
std::vector<std::vector<i64>> drawn(int batches) {
    std::mt19937 random(3);
    std::vector<i64> names(num_rows);
    std::iota(names.begin(), names.end(), 0);
    std::vector<std::vector<i64>> found;
    for (int batch = 0; batch < batches; ++batch) {
        for (u32 i = 0; i < 60; ++i) {
            const u32 span = random() % 2 == 0 ? 80 : num_rows;
            std::swap(names[i], names[i + random() % (std::max(span, 61U) - i)]);
        }
        found.emplace_back(names.begin(), names.begin() + 60);
    }
    return found;
}

// A cache whose memory holds the number of each row.
struct Live {
    std::unique_ptr<DemandCache> slots;
    std::vector<i64> memory;

    // Fetches a mini-batch and checks its rows; returns its misses.
    u64 fetch(const std::vector<i64>& rows) {
        const DemandLookup found = slots->look_up(rows);
        CHECK(found.hits.size() + found.misses.size() == rows.size());
        std::vector<i64> out(rows.size(), -1);
        for (const i64 i : found.misses) out[static_cast<size_t>(i)] = rows[static_cast<size_t>(i)];
        for (size_t i = 0; i < found.hits.size(); ++i)
            out[static_cast<size_t>(found.hits[i])] = memory[static_cast<size_t>(found.hit_slots[i])];
        CHECK(out == rows);
        for (size_t i = 0; i < found.admitted.size(); ++i)
            memory[static_cast<size_t>(found.into[i])] = out[static_cast<size_t>(found.admitted[i])];
        return found.misses.size();
    }
};

template <class Error, class Call>
bool refuses(Call call) {
    try {
        call();
    } catch (const Error&) {
        return true;
    }
    return false;
}

}  // namespace

int main() {
    const auto batches = drawn(200);
    std::vector<u32> rows;
    std::vector<i64> begins{0};
    for (const auto& batch : batches) {
        rows.insert(rows.end(), batch.begin(), batch.end());
        begins.push_back(static_cast<i64>(rows.size()));
    }
    const AccessTrace trace{rows, begins, num_rows};
    for (const char* policy : policies) {
        for (const u32 capacity : {0U, 1U, 2U, 10U, 100U, 499U, 500U, 1000U}) {
            Live cache{DemandCache::make(policy, num_rows, capacity), std::vector<i64>(capacity, -2)};
            u64 misses = 0;
            for (const auto& batch : batches) misses += cache.fetch(batch);
            CHECK(misses == demand_policy(policy)(trace, capacity));
        }
        const auto cache = DemandCache::make(policy, 10, 4);
        const std::vector<i64> wrong{3, 10};
        const std::vector<i64> right{3};
        CHECK(refuses<std::out_of_range>([&] { cache->look_up(wrong); }));
        CHECK(cache->look_up(right).misses.size() == 1);
    }
    CHECK(refuses<std::invalid_argument>([] { DemandCache::make("magic", 10, 4); }));
    return 0;
}
