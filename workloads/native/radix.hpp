// Parallel radix sort of a hop's new nodes by id, least significant digit first.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "scratch.hpp"
#include "team.hpp"

namespace outcore {

template <class Key>
struct Fresh {
    Key id;
    std::uint32_t slot;
};

// Sorts the lists of a team's members into one list. Keeps its buffers.
template <class Key>
class FreshSorter {
public:
    // lists[m] holds counts[m] entries with distinct ids below `ids`; the result is valid until the next call.
    Fresh<Key>* sort(Team& team, std::vector<Scratch<Fresh<Key>>>& lists, const std::vector<std::size_t>& counts,
                     std::uint64_t ids) {
        std::size_t total = 0;
        for (const std::size_t count : counts) total += count;
        sorted_.reserve(total);
        if (total < kSmall) {
            Fresh<Key>* end = sorted_.data();
            for (std::size_t m = 0; m < lists.size(); ++m) end = std::copy_n(lists[m].data(), counts[m], end);
            std::sort(sorted_.data(), end, [](const auto& a, const auto& b) { return a.id < b.id; });
            return sorted_.data();
        }
        other_.reserve(total);
        const int bits = std::max(static_cast<int>(std::bit_width(ids - 1)), 1);
        const int passes = (bits + kDigitBits - 1) / kDigitBits;
        const int digit_bits = (bits + passes - 1) / passes;
        const std::size_t digits = std::size_t{1} << digit_bits;
        const auto members = static_cast<std::size_t>(team.size());
        places_.resize(members * digits);
        for (int pass = 0; pass < passes; ++pass) {
            const int shift = pass * digit_bits;
            const Fresh<Key>* from = sorted_.data();
            Fresh<Key>* to = other_.data();
            // The first pass reads the members' lists, later ones equal shares of the last pass's result.
            const auto source = [&](std::size_t m) {
                const Fresh<Key>* first = pass == 0 ? lists[m].data() : from + total * m / members;
                const Fresh<Key>* last = pass == 0 ? first + counts[m] : from + total * (m + 1) / members;
                return std::pair(first, last);
            };
            const auto digit = [&](const Fresh<Key>& node) { return (node.id >> shift) & (digits - 1); };
            team.share(members, [&](std::size_t m) {
                std::size_t* histogram = places_.data() + m * digits;
                std::fill_n(histogram, digits, 0);
                const auto [first, last] = source(m);
                for (auto node = first; node != last; ++node) ++histogram[digit(*node)];
            });
            std::size_t place = 0;
            for (std::size_t d = 0; d < digits; ++d)
                for (std::size_t m = 0; m < members; ++m) place += std::exchange(places_[m * digits + d], place);
            team.share(members, [&](std::size_t m) {
                std::size_t* next = places_.data() + m * digits;
                const auto [first, last] = source(m);
                for (auto node = first; node != last; ++node) to[next[digit(*node)]++] = *node;
            });
            std::swap(sorted_, other_);
        }
        return sorted_.data();
    }

    std::size_t bytes() const noexcept {
        return sorted_.bytes() + other_.bytes() + places_.capacity() * sizeof(std::size_t);
    }

private:
    static constexpr std::size_t kSmall = 1024;
    static constexpr int kDigitBits = 11;

    Scratch<Fresh<Key>> sorted_, other_;
    std::vector<std::size_t> places_;
};

}  // namespace outcore
