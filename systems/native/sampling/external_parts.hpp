// State of a mini-batch between two hops of out-of-core sampling, and working memory for relabelling it.
#pragma once

#include <vector>

#include "base/radix.hpp"
#include "base/types.hpp"
#include "sampling/external_sampler.hpp"

namespace outcore {

inline constexpr u32 no_node = UINT32_MAX;  // invalid node id

struct ExternalSampler::Part {
    struct Run {
        u32 begin, end;
        u32 marked, drawn;  // ends of the nodes requested and of the nodes drawn for
    };

    u64 epoch = 0, number = 0;
    u32 hop = 0;  // next hop to draw
    std::vector<u32> nodes;
    std::vector<u32> seed_order;    // positions of the seed nodes by ascending id
    std::vector<Run> runs;          // ascending runs of nodes; the first is indexed through seed_order
    std::vector<u32> start, count;  // of each destination's edges in `arrived`
    std::vector<u32> arrived;       // source ids of the drawn edges
    std::vector<ExternalHop> hops;
    i64 list_reads = 0;
    bool settled = false;  // the last hop's block is built, too
    bool taken = false;    // laid out by lay_out

    u32 position(size_t run, u32 i) const { return run == 0 ? seed_order[i] : i; }
    u32 node(size_t run, u32 i) const { return nodes[position(run, i)]; }

    // Returns the first i of the run from `from` on whose node is `bound` or more.
    u32 until(size_t run, u32 from, u64 bound) const {
        u32 low = from, high = runs[run].end;
        for (u32 step = 1; low + step < high; step *= 2) {  // gallop: the result is usually near
            if (node(run, low + step) >= bound) {
                high = low + step;
                break;
            }
            low += step;
        }
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            if (node(run, middle) < bound) low = middle + 1;
            else high = middle;
        }
        return low;
    }
};

struct ExternalSampler::Labels {
    struct Entry {
        u32 id, position;
    };
    std::vector<Entry> table;
    std::vector<u64> fresh, other;  // id << 32 | entry of `table`; `other` is scratch

    u64 bytes() const { return table.capacity() * sizeof(Entry) + (fresh.capacity() + other.capacity()) * 8; }

    static u32 hash(u32 id) { return id * 0x9E3779B1U; }

    // Returns the entry of an id, or the empty entry (id `no_node`) for a new one.
    u32 find(u32 id, int shift) const {
        const auto mask = static_cast<u32>(table.size() - 1);
        u32 at = hash(id) >> shift;
        while (table[at].id != id && table[at].id != no_node) at = (at + 1) & mask;
        return at;
    }

    // Sorts `fresh` by ascending id.
    void sort(u64 num_nodes) {
        radix_sort(fresh, other, num_nodes, [](u64 value) { return value >> 32; });
    }
};

}  // namespace outcore
