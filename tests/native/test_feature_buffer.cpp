// Extractors race for slots; loads are published late and in pieces; a gathered row is never another node's.
#include <chrono>
#include <random>
#include <thread>

#include "cache/feature_buffer.hpp"
#include "check.hpp"

using namespace outcore;

namespace {

constexpr std::uint32_t nodes = 500;
constexpr std::uint32_t largest = 64;

// The table is plain memory on purpose: the thread sanitizer sees any row read before it was published.
void extract(FeatureBuffer& buffer, std::vector<std::int64_t>& table, unsigned seed, int rounds) {
    std::mt19937 random(seed);
    for (int round = 0; round < rounds; ++round) {
        std::vector<std::int64_t> ids(1 + random() % largest);
        for (auto& id : ids) id = static_cast<std::int64_t>(random() % nodes);
        Acquired got;
        std::uint64_t needed = 0;
        CHECK(buffer.acquire(ids, 60, got, needed) == BufferState::ok);
        std::size_t at = 0;
        while (at < got.load.size()) {
            std::vector<std::int64_t> slots;
            for (const std::size_t stop = std::min(got.load.size(), at + 1 + random() % 20); at < stop; ++at) {
                const auto position = static_cast<std::size_t>(got.load[at]);
                slots.push_back(got.alias[position]);
                table[static_cast<std::size_t>(slots.back())] = -1;
                if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
                table[static_cast<std::size_t>(slots.back())] = ids[position];
            }
            buffer.publish(slots);
        }
        std::string error;
        CHECK(buffer.wait(got.waiting, 60, error) == BufferState::ok);
        for (std::size_t i = 0; i < ids.size(); ++i) CHECK(table[static_cast<std::size_t>(got.alias[i])] == ids[i]);
        buffer.release(got.alias);
    }
}

void no_thread_sees_a_stale_row(std::uint32_t slots, unsigned threads_count, int rounds) {
    FeatureBuffer buffer(slots);
    std::vector<std::int64_t> table(slots, -1);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < threads_count; ++seed) {
        threads.emplace_back([&, seed] { extract(buffer, table, seed, rounds); });
    }
    for (auto& thread : threads) thread.join();
    CHECK(buffer.standby() == slots);
    const auto counts = buffer.counts();
    CHECK(counts.hits > 0 && counts.misses > 0 && counts.evictions > 0);
}

void closing_wakes_all() {
    FeatureBuffer buffer(4);
    Acquired first;
    std::uint64_t needed = 0;
    const std::vector<std::int64_t> ids{1, 2, 3, 4};
    CHECK(buffer.acquire(ids, 1, first, needed) == BufferState::ok);
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
        threads.emplace_back([&buffer, &first, i] {
            if (i % 2 == 0) {
                Acquired got;
                std::uint64_t wanted = 0;
                const std::vector<std::int64_t> others{i + 10};
                CHECK(buffer.acquire(others, -1, got, wanted) == BufferState::closed);
            } else {
                std::string error;
                CHECK(buffer.wait(first.alias, -1, error) == BufferState::closed);
            }
        });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    buffer.close();
    for (auto& thread : threads) thread.join();
}

}  // namespace

int main() {
    no_thread_sees_a_stale_row(4 * largest, 4, 400);
    no_thread_sees_a_stale_row(largest, 8, 150);  // slots for one batch at a time: slow, but no thread hangs
    closing_wakes_all();
}
