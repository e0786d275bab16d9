// Stable radix sort, least significant digit first, of a list or of the lists of a team's members.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "base/scratch.hpp"
#include "base/team.hpp"
#include "base/types.hpp"

namespace outcore {

// Sorts `items` by key(item), at most `largest`; `other` is scratch.
template <int kDigitBits = 11, class Item, class Key>
void radix_sort(std::vector<Item>& items, std::vector<Item>& other, u64 largest, const Key& key) {
    other.resize(items.size());
    for (int shift = 0; shift < static_cast<int>(std::bit_width(largest)); shift += kDigitBits) {
        std::array<u32, 1 << kDigitBits> begin{};
        const auto digit = [&](const Item& item) { return (u64{key(item)} >> shift) & ((1U << kDigitBits) - 1); };
        for (const Item& item : items) ++begin[digit(item)];
        u32 sum = 0;
        for (u32& count : begin) sum += std::exchange(count, sum);
        for (const Item& item : items) other[begin[digit(item)]++] = item;
        items.swap(other);
    }
}

template <class Key>
struct Fresh {
    Key id;
    u32 slot;
};

// Merges the lists of a team's members into a sorted list. Keeps its buffers.
template <class Key>
class FreshSorter {
public:
    // lists[m] holds counts[m] entries with distinct ids below `ids`; the result is valid until the next call.
    Fresh<Key>* sort(Team& team, std::vector<Scratch<Fresh<Key>>>& lists, const std::vector<size_t>& counts, u64 ids) {
        size_t total = 0;
        for (const size_t count : counts) total += count;
        sorted_.reserve(total);
        // Few nodes: one comparison sort.
        if (total < kSmall) {
            Fresh<Key>* end = sorted_.data();
            for (size_t m = 0; m < lists.size(); ++m) end = std::copy_n(lists[m].data(), counts[m], end);
            std::sort(sorted_.data(), end, [](const auto& a, const auto& b) { return a.id < b.id; });
            return sorted_.data();
        }
        // Many nodes: a radix sort, each pass shared by the team.
        other_.reserve(total);
        const int bits = std::max(static_cast<int>(std::bit_width(ids - 1)), 1);
        const int passes = (bits + kDigitBits - 1) / kDigitBits;
        const int digit_bits = (bits + passes - 1) / passes;
        const size_t digits = size_t{1} << digit_bits;
        const auto members = static_cast<size_t>(team.size());
        places_.resize(members * digits);
        for (int pass = 0; pass < passes; ++pass) {
            const int shift = pass * digit_bits;
            const Fresh<Key>* from = sorted_.data();
            Fresh<Key>* to = other_.data();
            // The first pass reads the members' lists, later ones equal shares of the last pass's result.
            const auto source = [&](size_t m) {
                const Fresh<Key>* first = pass == 0 ? lists[m].data() : from + total * m / members;
                const Fresh<Key>* last = pass == 0 ? first + counts[m] : from + total * (m + 1) / members;
                return std::pair(first, last);
            };
            const auto digit = [&](const Fresh<Key>& node) { return (node.id >> shift) & (digits - 1); };
            team.share(members, [&](size_t m) {
                size_t* histogram = places_.data() + m * digits;
                std::fill_n(histogram, digits, 0);
                const auto [first, last] = source(m);
                for (auto node = first; node != last; ++node) ++histogram[digit(*node)];
            });
            size_t place = 0;
            for (size_t d = 0; d < digits; ++d)
                for (size_t m = 0; m < members; ++m) place += std::exchange(places_[m * digits + d], place);
            team.share(members, [&](size_t m) {
                size_t* next = places_.data() + m * digits;
                const auto [first, last] = source(m);
                for (auto node = first; node != last; ++node) to[next[digit(*node)]++] = *node;
            });
            std::swap(sorted_, other_);
        }
        return sorted_.data();
    }

    size_t bytes() const noexcept { return sorted_.bytes() + other_.bytes() + places_.capacity() * sizeof(size_t); }

private:
    static constexpr size_t kSmall = 1024;
    static constexpr int kDigitBits = 11;

    Scratch<Fresh<Key>> sorted_, other_;
    std::vector<size_t> places_;
};

}  // namespace outcore
