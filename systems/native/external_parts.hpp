// State of a mini-batch between two hops of out-of-core sampling, and working memory for relabelling it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "external_sampler.hpp"

namespace outcore {

inline constexpr std::uint32_t nobody = UINT32_MAX;  // invalid node id

struct ExternalSampler::Part {
    struct Run {
        std::uint32_t begin, end;
        std::uint32_t marked, drawn;  // ends of the nodes requested and of the nodes drawn for
    };

    std::uint64_t epoch = 0, number = 0;
    std::uint32_t hop = 0;  // next hop to draw
    std::vector<std::uint32_t> nodes;
    std::vector<std::uint32_t> seed_order;  // positions of the seed nodes by ascending id
    std::vector<Run> runs;                  // ascending runs of nodes; the first is indexed through seed_order
    std::vector<std::uint32_t> start, count;  // of each destination's edges in `arrived`
    std::vector<std::uint32_t> arrived;     // source ids of the drawn edges
    std::vector<ExternalHop> hops;
    std::int64_t list_reads = 0;
    bool settled = false;  // the last hop's block is built, too
    bool taken = false;    // laid out by lay_out

    std::uint32_t position(std::size_t run, std::uint32_t i) const { return run == 0 ? seed_order[i] : i; }
    std::uint32_t node(std::size_t run, std::uint32_t i) const { return nodes[position(run, i)]; }

    // Returns the first i of the run from `from` on whose node is `bound` or more.
    std::uint32_t until(std::size_t run, std::uint32_t from, std::uint64_t bound) const {
        std::uint32_t low = from, high = runs[run].end;
        for (std::uint32_t step = 1; low + step < high; step *= 2) {  // gallop: the result is usually near
            if (node(run, low + step) >= bound) {
                high = low + step;
                break;
            }
            low += step;
        }
        while (low < high) {
            const std::uint32_t middle = low + (high - low) / 2;
            if (node(run, middle) < bound) low = middle + 1;
            else high = middle;
        }
        return low;
    }
};

struct ExternalSampler::Labels {
    struct Entry {
        std::uint32_t id, position;
    };
    std::vector<Entry> table;
    std::vector<std::uint64_t> fresh, other;  // id << 32 | entry of `table`; `other` is scratch

    std::uint64_t bytes() const { return table.capacity() * sizeof(Entry) + (fresh.capacity() + other.capacity()) * 8; }

    static std::uint32_t hash(std::uint32_t id) { return id * 0x9E3779B1U; }

    // Returns the entry of an id, or the empty entry (id `nobody`) for a new one.
    std::uint32_t find(std::uint32_t id, int shift) const {
        const auto mask = static_cast<std::uint32_t>(table.size() - 1);
        std::uint32_t at = hash(id) >> shift;
        while (table[at].id != id && table[at].id != nobody) at = (at + 1) & mask;
        return at;
    }

    // Sorts `fresh` by ascending id.
    void sort(std::uint64_t num_nodes) {
        constexpr int digit = 11;
        other.resize(fresh.size());
        for (int shift = 32; shift < 32 + static_cast<int>(std::bit_width(num_nodes)); shift += digit) {
            std::array<std::uint32_t, 1 << digit> begin{};
            for (const auto value : fresh) ++begin[value >> shift & ((1U << digit) - 1)];
            std::uint32_t sum = 0;
            for (auto& count : begin) sum += std::exchange(count, sum);
            for (const auto value : fresh) other[begin[value >> shift & ((1U << digit) - 1)]++] = value;
            fresh.swap(other);
        }
    }
};

}  // namespace outcore
