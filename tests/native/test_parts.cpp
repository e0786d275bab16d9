// Progress finishes every kind of short read; the buddy allocator never hands out a byte twice.
#include <algorithm>
#include <random>

#include "check.hpp"
#include "read/window.hpp"

using outcore::Buddy;
using outcore::Progress;

namespace {

// A request of `need` bytes of a file with `there` bytes left, cut short at random: done exactly if the bytes exist.
void short_reads_are_finished() {
    std::mt19937 random(1);
    for (int round = 0; round < 20000; ++round) {
        const std::uint32_t block = 512U << (random() % 4);
        const std::uint32_t need = 1 + random() % (8 * block);
        const std::uint32_t length = (need + block - 1) / block * block;
        const std::uint32_t there = random() % 3 == 0 ? random() % (length + 1) : length;
        std::vector<bool> arrived(length, false);
        Progress progress{block, need};
        Progress::Next next = Progress::Next::again;
        int reads = 0;
        while (next == Progress::Next::again) {
            CHECK(progress.base % block == 0);
            CHECK(++reads < 10000);
            const std::uint32_t left = there > progress.base ? there - progress.base : 0;
            // A file system returns at least one new byte unless the file ends.
            const std::uint32_t least = std::min(left, progress.got - progress.base + 1);
            const std::uint32_t result = least + (left > least ? random() % (left - least + 1) : 0);
            std::fill_n(arrived.begin() + progress.base, result, true);
            next = progress.advance(result);
        }
        CHECK((next == Progress::Next::done) == (there >= need));
        if (next == Progress::Next::done)
            CHECK(std::all_of(arrived.begin(), arrived.begin() + need, [](bool b) { return b; }));
        if (next == Progress::Next::ended) CHECK(progress.got == there);
    }
}

void buddy_never_hands_out_a_byte_twice() {
    std::mt19937 random(2);
    for (const std::size_t units : {1U, 2U, 7U, 64U, 100U, 129U}) {
        constexpr std::size_t unit = 512;
        Buddy buddy(units * unit, unit);
        std::vector<int> owner(units, 0);
        std::vector<std::pair<std::size_t, std::size_t>> held;
        for (int round = 0; round < 20000; ++round) {
            if (random() % 2 == 0) {
                const std::size_t bytes = 1 + random() % (units * unit);
                const std::size_t at = buddy.allocate(bytes);
                if (at == SIZE_MAX) {
                    // With nothing held, the largest power of two must be free.
                    CHECK(!held.empty() || Buddy::rounded(bytes, unit) > std::bit_floor(units) * unit);
                    continue;
                }
                CHECK(at % unit == 0 && at + Buddy::rounded(bytes, unit) <= units * unit);
                for (std::size_t u = at / unit; u < (at + bytes + unit - 1) / unit; ++u) CHECK(owner[u]++ == 0);
                held.emplace_back(at, bytes);
            } else if (!held.empty()) {
                const std::size_t which = random() % held.size();
                const auto [at, bytes] = held[which];
                held[which] = held.back();
                held.pop_back();
                for (std::size_t u = at / unit; u < (at + bytes + unit - 1) / unit; ++u) CHECK(--owner[u] == 0);
                buddy.release(at, bytes);
            }
        }
        for (const auto& [at, bytes] : held) buddy.release(at, bytes);
        CHECK(buddy.allocate(std::bit_floor(units) * unit) != SIZE_MAX);
    }
}

}  // namespace

int main() {
    short_reads_are_finished();
    buddy_never_hands_out_a_byte_twice();
}
