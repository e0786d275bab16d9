// Batched packing and the range queue on threads: the same bytes for any threads, partitions and writes; failures end
// every thread; a queue that is closed early writes nowhere afterwards.
#include "store/packing.hpp"

#include <cstring>
#include <random>
#include <thread>

#include "base/aligned_memory.hpp"
#include "check.hpp"

using namespace outcore;

namespace {

constexpr std::uint64_t header = 1000;  // not aligned to anything

void packs_the_right_rows(std::uint64_t row_bytes, std::uint64_t num_rows) {
    const TestFile table(header + num_rows * row_bytes);
    std::mt19937_64 random(row_bytes);
    std::vector<std::uint32_t> ids;
    std::vector<PackChunk> chunks;
    std::uint64_t at = 0;
    for (int c = 0; c < 23; ++c) {
        const std::uint64_t begin = ids.size();
        const std::uint64_t keep = c == 5 ? 0 : 1 + random() % 6;  // one chunk is empty
        for (std::uint32_t row = 0; row < num_rows && keep > 0; ++row) {
            if (random() % 6 < keep) ids.push_back(row);
        }
        chunks.push_back({0, at, begin, ids.size()});
        at += padded((ids.size() - begin) * row_bytes);
    }
    std::vector<std::byte> expected(at);
    for (const auto& chunk : chunks) {
        std::byte* to = expected.data() + chunk.offset;
        for (std::uint64_t i = chunk.begin; i < chunk.end; ++i, to += row_bytes) {
            std::memcpy(to, table.bytes.data() + header + ids[i] * row_bytes, row_bytes);
        }
    }
    std::vector<std::uint64_t> digests;
    for (const int way : {0, 1, 2, 3}) {
        const std::uint32_t threads = way % 2 == 0 ? 1 : 7;
        for (const std::uint64_t partition_rows : {std::uint64_t{7}, num_rows / 3 + 1}) {
            const TestFile out(at, 99);
            PackOptions options;
            options.partition_rows = partition_rows;
            options.buffers = 1 + threads % 3;
            options.write_bytes = threads == 1 ? page_bytes : 4 * page_bytes;
            options.hold = way >= 2;
            options.threads = threads;
            options.read = {4, 8192, true, false};
            const std::vector<std::string> files{out.path};
            const PackResult result = pack_pass({table.path, header, num_rows, row_bytes}, files, chunks, ids, options);
            CHECK(!result.failure);
            CHECK(result.bytes_written == at);
            if (digests.empty()) digests = result.digests;
            CHECK(result.digests == digests);
            std::vector<std::byte> found(at);
            const int fd = open(out.path.c_str(), O_RDONLY);
            CHECK(read(fd, found.data(), at) == static_cast<ssize_t>(at));
            close(fd);
            CHECK(equal_bytes(found, expected));
        }
    }
}

// Small partitions have few rows of a chunk; a chunk that holds its rows is still written in full buffers.
void chunks_that_hold_rows_back_are_written_in_long_pieces() {
    constexpr std::uint64_t row_bytes = 512;
    constexpr std::uint32_t num_rows = 4096;
    const TestFile table(num_rows * row_bytes);
    std::vector<std::uint32_t> ids;
    std::vector<PackChunk> chunks;
    for (std::uint64_t c = 0; c < 9; ++c) {
        for (std::uint32_t row = 0; row < num_rows; row += 2) ids.push_back(row);
        chunks.push_back({0, c * num_rows / 2 * row_bytes, c * num_rows / 2, (c + 1) * num_rows / 2});
    }
    const std::uint64_t bytes = num_rows / 2 * row_bytes;
    const TestFile out(9 * bytes);
    const std::vector<std::string> files{out.path};
    PackOptions options;
    options.partition_rows = 64;
    options.write_bytes = 32 * page_bytes;
    options.threads = 3;
    std::vector<PackResult> results;
    for (const bool hold : {false, true}) {
        options.hold = hold;
        results.push_back(pack_pass({table.path, 0, num_rows, row_bytes}, files, chunks, ids, options));
        CHECK(!results.back().failure);
    }
    CHECK(results[0].digests == results[1].digests);
    CHECK(results[0].writes == 9 * results[0].partitions);
    CHECK(results[1].writes <= 9 * (bytes / options.write_bytes + 1));  // the first write is shorter
}

void a_cut_table_ends_every_thread() {
    const TestFile table(header + 500 * 64);
    const TestFile out(padded(1000 * 64));
    std::vector<std::uint32_t> ids(1000);
    for (std::uint32_t i = 0; i < ids.size(); ++i) ids[i] = i;
    const std::vector<PackChunk> chunks{{0, 0, 0, 1000}, {0, 0, 0, 400}};
    PackOptions options;
    options.partition_rows = 100;
    options.write_bytes = page_bytes;
    const std::vector<std::string> files{out.path};
    for (const bool hold : {false, true}) {
        options.hold = hold;
        const PackResult result = pack_pass({table.path, header, 1000, 64}, files, chunks, ids, options);
        CHECK(result.failure && !result.failure->writing && result.failure->code == 0);
        CHECK(result.failure->offset == header + 500 * 64);
    }
}

void a_queue_serves_many_threads_and_closes_early() {
    const TestFile file(1 << 20);
    for (int round = 0; round < 8; ++round) {
        RangeQueue queue(file.path, {4, 16384, true, false});
        std::vector<std::thread> threads;
        for (unsigned seed = 0; seed < 4; ++seed) {
            threads.emplace_back([&, seed] {
                std::mt19937 random(seed);
                const AlignedMemory memory(1 << 17);
                for (int i = 0; i < 10; ++i) {
                    const std::uint64_t offset = random() % 200 * 4096;
                    const std::uint64_t need = 1 + random() % 100000;
                    const auto [failure, seconds] =
                        queue.wait(queue.submit(offset, need, {memory.data(), memory.size()}));
                    CHECK(!failure);
                    CHECK(std::memcmp(memory.data(), file.bytes.data() + offset, need) == 0);
                }
            });
        }
        for (auto& thread : threads) thread.join();
        const AlignedMemory memory(1 << 20);
        const auto ticket = queue.submit(0, 1 << 20, {memory.data(), memory.size()});
        queue.close();
        const auto failure = queue.wait(ticket).failure;
        CHECK(!failure || failure->code == ECANCELED);
        std::memset(memory.data(), 0, memory.size());  // a race if the queue still wrote there
    }
}

}  // namespace

int main() {
    for (const std::uint64_t row_bytes : {4, 516, 5000}) packs_the_right_rows(row_bytes, 300);
    chunks_that_hold_rows_back_are_written_in_long_pieces();
    a_cut_table_ends_every_thread();
    a_queue_serves_many_threads_and_closes_early();
}
