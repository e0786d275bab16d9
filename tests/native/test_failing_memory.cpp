// Each allocation fails once, in any thread: the caller gets the error, no thread waits for ever, all resources are
// released, and the next call succeeds.
#include "failing_memory.hpp"

#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/aligned_memory.hpp"
#include "base/team.hpp"
#include "cache/feature_buffer.hpp"
#include "cache/policies.hpp"
#include "cache/segment_pool.hpp"
#include "check.hpp"
#include "store/packing.hpp"

using namespace outcore;

namespace {

std::vector<std::int64_t> numbers(std::int64_t first, std::size_t count) {
    std::vector<std::int64_t> ids(count);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
}

void an_acquire_that_fails_leaves_its_turn_and_takes_nothing() {
    FeatureBuffer buffer(64);
    const auto held = numbers(0, 32), wanted = numbers(16, 40);
    Acquired first;
    std::uint64_t needed = 0;
    CHECK(buffer.acquire(held, 1, first, needed) == BufferState::ok);
    buffer.publish(first.alias);
    // More ids than slots: counting the unique ones allocates memory after the turn was taken.
    std::vector<std::int64_t> repeated = wanted;
    repeated.insert(repeated.end(), wanted.begin(), wanted.end());
    const long thrown = failing_memory::each_once([&] {
        CHECK(buffer.standby() == 32);
        Acquired got;
        CHECK(buffer.acquire(repeated, 1, got, needed) == BufferState::ok);
        const long rest = failing_memory::left.exchange(failing_memory::never);  // the calls that follow must not fail
        std::vector<std::int64_t> slots;
        for (const auto position : got.load) slots.push_back(got.alias[static_cast<std::size_t>(position)]);
        buffer.publish(slots);
        buffer.release(got.alias);
        failing_memory::left = rest;
    });
    CHECK(thrown > 3);
    Acquired after;
    CHECK(buffer.acquire(wanted, 1, after, needed) == BufferState::ok);
    buffer.release(after.alias);
    buffer.release(first.alias);
    CHECK(buffer.standby() == 64);
}

void a_fetch_that_fails_pins_nothing() {
    const std::uint64_t bytes = SegmentPool::bytes(1, 2, 8);
    const AlignedMemory memory(bytes), staging(2 * 8 * 64);
    SegmentPool pool(1, 2, 8, {memory.data(), bytes}, true);
    std::uint32_t one = 0, other = 0;
    CHECK(pool.acquire(0, false, false, one) == SegmentPool::State::ok);
    pool.publish(one, numbers(0, 8));
    pool.release(0, one);
    CHECK(pool.acquire(0, false, false, other) == SegmentPool::State::ok && other != one);
    const auto nodes = numbers(0, 8);
    CHECK(failing_memory::each_once(
              [&] { CHECK(pool.fetch(0, other, nodes, {staging.data(), staging.size()}, 64).size() == 8); }) > 0);
    pool.release(0, other);
    // A segment that is pinned is never handed out.
    for (int i = 0; i < 2; ++i) CHECK(pool.acquire(0, false, false, other) == SegmentPool::State::ok);
}

void shared_loops_carry_what_their_body_throws() {
    for (int round = 0; round < 50; ++round) {
        std::atomic<int> inside{0};
        bool thrown = false;
        try {
            parallel(100, 1, 4, [&](std::size_t i, std::size_t, int) {
                ++inside;
                const std::vector<std::byte> some(1000);
                if (i == 30) {
                    --inside;
                    throw std::bad_alloc();
                }
                --inside;
            });
        } catch (const std::bad_alloc&) {
            thrown = true;
        }
        CHECK(thrown && inside == 0);
        std::atomic<std::size_t> done{0};
        parallel(1000, 7, 4, [&](std::size_t begin, std::size_t end, int) { done += end - begin; });
        CHECK(done == 1000);
    }
    std::atomic<std::size_t> done{0};
    CHECK(failing_memory::each_once([&] {
              Team team(4);
              done = 0;
              team.share(64, [&](std::size_t) { ++done; });
              CHECK(done == 64);
          }) <= 2);
    failing_memory::each_once([&] {
        done = 0;
        parallel(64, 1, 4, [&](std::size_t begin, std::size_t end, int) { done += end - begin; });
        CHECK(done == 64);  // the loop ends without the missing helpers
    });
}

void policies_of_several_threads_carry_it() {
    std::vector<std::uint32_t> rows(3000);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint32_t>(i * 7 % 100);
    std::vector<std::int64_t> begins;
    for (std::int64_t at = 0; at <= 3000; at += 50) begins.push_back(at);
    const AccessTrace trace{rows, begins, 100};
    const std::vector<std::int64_t> sizes{10, 20, 40, 80};
    const auto expected = policy_misses("sieve", trace, sizes, 1);
    CHECK(failing_memory::each_once([&] { CHECK(policy_misses("sieve", trace, sizes, 4) == expected); }) > 3);
}

void a_pass_carries_it(bool hold, bool ring) {
    const TestFile table(1000 * 64), out(1 << 17, 2);
    std::vector<std::uint32_t> ids;
    std::vector<PackChunk> chunks;
    for (std::uint64_t c = 0; c < 2; ++c) {
        for (std::uint32_t row = 0; row < 1000; row += 2) ids.push_back(row);
        chunks.push_back({0, c << 16, c * 500, (c + 1) * 500});
    }
    PackOptions options;
    options.partition_rows = 100;
    options.write_bytes = page_bytes;
    options.hold = hold;
    options.threads = 3;
    options.read = {2, 4096, {ring, false}};
    const std::vector<std::string> files{out.path};
    const auto pass = [&] { return pack_pass({table.path, 0, 1000, 64}, files, chunks, ids, options); };
    const auto digests = pass().digests;
    const long thrown = failing_memory::each_once([&] {
        const PackResult result = pass();
        // Where the queue's own thread had no memory, the pass fails with a read failure.
        if (result.failure) CHECK(result.failure->code == ENOMEM && !result.failure->writing);
        else CHECK(result.digests == digests);
    });
    CHECK(thrown > 5);
}

// A staging buffer too large to map (mappings do not come from operator new).
void threads_without_their_buffers_end_the_pass() {
    const TestFile table(1000 * 64), out(1 << 17, 2);
    std::vector<std::uint32_t> ids(1000);
    std::iota(ids.begin(), ids.end(), 0U);
    const std::vector<PackChunk> chunks{{0, 0, 0, 1000}};
    PackOptions options;
    options.partition_rows = 100;
    options.write_bytes = std::uint64_t{1} << 46;
    options.threads = 4;
    const std::vector<std::string> files{out.path};
    bool thrown = false;
    try {
        pack_pass({table.path, 0, 1000, 64}, files, chunks, ids, options);
    } catch (const std::bad_alloc&) {
        thrown = true;
    }
    CHECK(thrown);
}

}  // namespace

int main() {
    an_acquire_that_fails_leaves_its_turn_and_takes_nothing();
    a_fetch_that_fails_pins_nothing();
    shared_loops_carry_what_their_body_throws();
    policies_of_several_threads_carry_it();
    for (const bool hold : {false, true})
        for (const bool ring : {false, true}) a_pass_carries_it(hold, ring);
    threads_without_their_buffers_end_the_pass();
}
