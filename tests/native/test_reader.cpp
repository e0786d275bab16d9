// Reads on several threads, each with its own reader: both backends, rows of many sizes, and files cut after opening.
#include <cstring>
#include <random>
#include <thread>

#include "check.hpp"
#include "read/reader.hpp"

using namespace outcore;

namespace {

ReaderOptions options_for(const TestFile& file, std::uint64_t row_bytes, bool ring) {
    ReaderOptions options;
    options.data_offset = 4096;
    options.row_bytes = row_bytes;
    options.num_rows = (file.bytes.size() - 4096) / row_bytes;
    options.depth = 32;
    options.threads = 8;
    options.choice.want_ring = ring;
    return options;
}

std::vector<std::int64_t> draw(std::mt19937& random, std::size_t count, std::uint64_t num_rows) {
    std::vector<std::int64_t> ids(count);
    for (auto& id : ids) id = static_cast<std::int64_t>(random() % num_rows);
    return ids;
}

void read_rows(const TestFile& file, std::uint64_t row_bytes, bool ring, unsigned seed) {
    const auto options = options_for(file, row_bytes, ring);
    Reader reader(file.path, options);
    std::mt19937 random(seed);
    for (int round = 0; round < 5; ++round) {
        const auto ids = draw(random, 1 + random() % 500, options.num_rows);
        std::vector<std::byte> out(ids.size() * row_bytes);
        const auto result = reader.read(ids, {out.data(), ids.size(), reader.layout().row_bytes}, {});
        CHECK(!result.failure);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const std::byte* row = file.bytes.data() + 4096 + static_cast<std::uint64_t>(ids[i]) * row_bytes;
            CHECK(std::memcmp(out.data() + i * row_bytes, row, row_bytes) == 0);
        }
    }
}

void read_groups(const TestFile& file, std::uint64_t row_bytes, bool ring, unsigned seed) {
    const auto options = options_for(file, row_bytes, ring);
    Reader reader(file.path, options);
    std::mt19937 random(seed);
    const auto ids = draw(random, 700, options.num_rows);
    std::vector<std::byte> staging(3 * 40 * row_bytes);
    std::size_t rows = 0;
    {
        GroupRead read(reader, ids, staging, 40);
        GroupRead::Group group{};
        while (read.next(group) == GroupRead::State::group) {
            for (std::size_t k = 0; k < group.rows.size(); ++k) {
                const std::byte* row =
                    file.bytes.data() + 4096 + static_cast<std::uint64_t>(ids[group.rows[k].position]) * row_bytes;
                CHECK(std::memcmp(staging.data() + (group.slice * 40 + k) * row_bytes, row, row_bytes) == 0);
            }
            rows += group.rows.size();
            read.give_back(group.slice);
        }
        CHECK(!read.failure());
    }
    CHECK(rows == ids.size());
    // Destroyed early: the reads in flight must end before the staging buffer does.
    GroupRead early(reader, ids, staging, 40);
    GroupRead::Group group{};
    CHECK(early.next(group) == GroupRead::State::group);
}

void a_cut_file_fails(bool ring) {
    TestFile file(4096 + 1000 * 100);
    const auto options = options_for(file, 100, ring);
    Reader reader(file.path, options);
    CHECK(truncate(file.path.c_str(), 4096 + 500 * 100 + 7) == 0);
    std::vector<std::int64_t> ids(1000);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
    std::vector<std::byte> out(1000 * 100);
    const auto result = reader.read(ids, {out.data(), 1000, reader.layout().row_bytes}, {});
    CHECK(result.failure && result.failure->code == 0 && result.failure->offset == 4096 + 500 * 100 + 7);
    ids.resize(500);
    CHECK(!reader.read(ids, {out.data(), 1000, reader.layout().row_bytes}, {}).failure);
    CHECK(std::memcmp(out.data(), file.bytes.data() + 4096, 500 * 100) == 0);
}

}  // namespace

int main() {
    const TestFile file(4096 + (4 << 20) + 300);
#if defined(__SANITIZE_THREAD__)
    // The kernel's writes into the ring are invisible to the thread sanitizer: test only the pread pool.
    const std::vector<bool> ways{false};
#else
    const std::vector<bool> ways{true, false};
#endif
    for (const bool ring : ways) {
        for (const std::uint64_t row_bytes : {1U, 4U, 200U, 512U, 516U, 3072U, 16384U}) {
            std::vector<std::thread> threads;
            for (unsigned seed = 0; seed < 4; ++seed) {
                threads.emplace_back([&, seed] {
                    read_rows(file, row_bytes, ring, seed);
                    read_groups(file, row_bytes, ring, seed);
                });
            }
            for (auto& thread : threads) thread.join();
        }
        a_cut_file_fails(ring);
    }
}
