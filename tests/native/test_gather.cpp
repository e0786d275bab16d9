// Gathers from several threads at once borrow teams of threads without mixing their rows.
#include <cstring>
#include <random>
#include <thread>

#include "base/team.hpp"
#include "check.hpp"
#include "read/gather.hpp"

using namespace outcore;

int main() {
    constexpr std::uint64_t row_bytes = 100;
    std::vector<std::byte> table(5000 * row_bytes);
    std::mt19937_64 fill(1);
    for (auto& byte : table) byte = static_cast<std::byte>(fill());
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 6; ++seed) {
        threads.emplace_back([&, seed] {
            std::mt19937 random(seed);
            for (int round = 0; round < 200; ++round) {
                std::vector<std::int64_t> rows(random() % 300);
                for (auto& row : rows) row = static_cast<std::int64_t>(random() % 5000);
                std::vector<std::byte> out(rows.size() * row_bytes);
                CHECK(gather({table.data(), 5000, row_bytes}, rows, {out.data(), rows.size(), row_bytes},
                             1 + random() % 8, random() % 2 == 0) == -1);
                for (std::size_t i = 0; i < rows.size(); ++i) {
                    const std::byte* row = table.data() + static_cast<std::uint64_t>(rows[i]) * row_bytes;
                    CHECK(std::memcmp(out.data() + i * row_bytes, row, row_bytes) == 0);
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();

    Team team(5);  // destroyed, unlike the shared teams: its members must end
    std::vector<int> touched(10000, 0);
    team.loop(touched.size(), 7, [&](std::size_t begin, std::size_t end, int) {
        for (std::size_t i = begin; i < end; ++i) ++touched[i];
    });
    for (const int count : touched) CHECK(count == 1);
}
