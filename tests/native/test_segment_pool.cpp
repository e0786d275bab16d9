// Threads of three parties fill, publish, fetch and hold segments of one staging buffer; no row is ever another node's,
// no thread starves, and every segment comes back.
#include <cstring>
#include <random>
#include <thread>

#include "base/aligned_memory.hpp"
#include "cache/segment_pool.hpp"
#include "check.hpp"

using namespace outcore;

namespace {

constexpr std::uint32_t parties = 3;
constexpr std::uint32_t portion = 2;
constexpr std::uint32_t rows = 8;
constexpr std::int64_t nodes = 60;
constexpr std::uint64_t row_bytes = sizeof(std::int64_t);

// The rows are plain memory on purpose: the thread sanitizer sees any row read before it was published, or written
// while another thread copies it.
void load(SegmentPool& pool, std::span<std::int64_t> table, std::uint32_t party, unsigned seed, int rounds) {
    std::mt19937 random(seed);
    const std::span bytes(reinterpret_cast<std::byte*>(table.data()), table.size_bytes());
    for (int round = 0; round < rounds; ++round) {
        std::vector<std::int64_t> wanted(rows);
        for (auto& node : wanted) node = static_cast<std::int64_t>(random() % nodes);
        std::vector<std::uint32_t> held(1);
        CHECK(pool.acquire(party, true, true, held[0]) == SegmentPool::State::ok);
        for (std::uint32_t more = 0;
             random() % 2 == 0 && pool.acquire(party, true, false, more) == SegmentPool::State::ok;) {
            held.push_back(more);
        }
        for (const std::uint32_t segment : held) {
            std::int64_t* mine = table.data() + std::size_t{segment} * rows;
            const auto found = pool.fetch(party, segment, wanted, bytes, row_bytes);
            for (std::size_t i = 0; i < found.size(); ++i) CHECK(mine[i] == wanted[static_cast<std::size_t>(found[i])]);
            for (std::size_t i = 0; i < rows; ++i) mine[i] = wanted[i];
            pool.publish(segment, wanted);
        }
        for (const std::uint32_t segment : held) pool.release(party, segment);
    }
}

}  // namespace

int main() {
    const AlignedMemory memory(SegmentPool::bytes(parties, portion, rows));
    SegmentPool pool(parties, portion, rows, {memory.data(), memory.size()}, true);
    std::vector<std::int64_t> table(std::size_t{parties} * portion * rows, -1);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 6; ++seed) {
        threads.emplace_back([&, seed] {
            SegmentPool own(parties, portion, rows, {memory.data(), memory.size()}, false);
            load(own, table, seed % parties, seed, 2000);
        });
    }
    for (auto& thread : threads) thread.join();
    std::uint64_t found = 0;
    std::uint64_t borrowed = 0;
    for (std::uint32_t party = 0; party < parties; ++party) {
        found += pool.counts(party).found;
        borrowed += pool.counts(party).borrowed;
    }
    CHECK(found > 0 && borrowed > 0);
    std::uint32_t segment = 0;
    for (std::uint32_t i = 0; i < parties * portion; ++i) {
        CHECK(pool.acquire(0, true, false, segment) == SegmentPool::State::ok);
    }
    CHECK(pool.acquire(0, true, false, segment) == SegmentPool::State::none);
    std::thread waiter([&] {
        std::uint32_t any = 0;
        CHECK(pool.acquire(1, true, true, any) == SegmentPool::State::closed);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    pool.close();
    waiter.join();
}
