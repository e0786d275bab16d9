// Belady's replacement and LRU for all sizes at once, and the choice between a pass for all sizes and a pass a size.
#include "policies.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "offsets.hpp"
#include "parallel.hpp"

namespace outcore {
namespace {

constexpr std::uint32_t none = UINT32_MAX;

// Returns for each access the next mini-batch that uses its row, or `none`.
std::vector<std::uint32_t> next_uses(const AccessTrace& trace) {
    std::vector<std::uint32_t> next(trace.rows.size());
    std::vector<std::uint32_t> upcoming(trace.num_rows, none);
    for (std::size_t batch = trace.num_batches(); batch-- > 0;) {
        const auto begin = static_cast<std::size_t>(trace.begins[batch]);
        const auto end = static_cast<std::size_t>(trace.begins[batch + 1]);
        for (std::size_t i = begin; i < end; ++i) {
            next[i] = std::exchange(upcoming[trace.rows[i]], static_cast<std::uint32_t>(batch));
        }
    }
    return next;
}

// Queue of rows by the mini-batch of their next use, soonest first. No push is sooner than the last pop, so the search
// for the first non-empty mini-batch only moves forward.
class Soonest {
public:
    explicit Soonest(std::uint32_t num_rows, std::size_t num_batches)
        : head_(num_batches, none), link_(num_rows), filled_((num_batches + 63) / 64) {}

    bool empty() const { return size_ == 0; }

    void start(std::uint32_t batch) { current_ = batch; }

    void push(std::uint32_t row, std::uint32_t next) {
        link_[row] = std::exchange(head_[next], row);
        filled_[next / 64] |= std::uint64_t{1} << (next % 64);
        ++size_;
    }

    std::uint32_t soonest() {
        if (head_[current_] == none) {
            std::size_t word = current_ / 64;
            std::uint64_t bits = filled_[word] & (~std::uint64_t{0} << (current_ % 64));
            while (bits == 0) bits = filled_[++word];
            current_ = static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
        }
        return current_;
    }

    std::uint32_t pop() {
        const std::uint32_t next = soonest();
        const std::uint32_t row = head_[next];
        head_[next] = link_[row];
        if (head_[next] == none) filled_[next / 64] &= ~(std::uint64_t{1} << (next % 64));
        --size_;
        return row;
    }

private:
    std::vector<std::uint32_t> head_;
    std::vector<std::uint32_t> link_;
    std::vector<std::uint64_t> filled_;
    std::uint32_t current_ = 0;
    std::size_t size_ = 0;
};

// Set of the positions in a window of time that are a row's last access; counts the positions behind one of them. Bits
// in blocks of 512, with a Fenwick tree over the blocks: small enough to stay in the nearest processor caches.
class LiveTimes {
public:
    explicit LiveTimes(std::size_t window) : words_(window / 64), tree_(window / block + 1) {}

    static constexpr std::size_t block = 512;

    void set(std::size_t at) {
        words_[at / 64] |= std::uint64_t{1} << (at % 64);
        add(at / block, 1);
        ++total_;
    }

    void clear(std::size_t at) {
        words_[at / 64] &= ~(std::uint64_t{1} << (at % 64));
        add(at / block, -1);
        --total_;
    }

    bool has(std::size_t at) const { return words_[at / 64] >> (at % 64) & 1; }

    std::size_t behind(std::size_t at) const {
        std::int64_t before = 0;
        for (std::size_t i = at / block; i > 0; i &= i - 1) before += tree_[i];
        const std::size_t word = at / 64;
        for (std::size_t w = at / block * (block / 64); w < word; ++w) before += std::popcount(words_[w]);
        before += std::popcount(words_[word] & (~std::uint64_t{0} >> (63 - at % 64)));
        return total_ - static_cast<std::size_t>(before);
    }

    void reset() {
        std::ranges::fill(words_, 0);
        std::ranges::fill(tree_, 0);
        total_ = 0;
    }

private:
    void add(std::size_t index, std::int32_t delta) {
        for (std::size_t i = index + 1; i < tree_.size(); i += i & -i) tree_[i] += delta;
    }

    std::vector<std::uint64_t> words_;
    std::vector<std::int32_t> tree_;
    std::size_t total_ = 0;
};

}  // namespace

std::optional<Policy> policy_named(std::string_view name) {
    using enum Policy;
    constexpr std::array<std::pair<std::string_view, Policy>, 7> names{{{"belady", belady},
                                                                       {"lru", lru},
                                                                       {"fifo", fifo},
                                                                       {"lfu", lfu},
                                                                       {"clock", clock},
                                                                       {"sieve", sieve},
                                                                       {"s3-fifo", s3fifo}}};
    for (const auto& [known, policy] : names) {
        if (known == name) return policy;
    }
    return std::nullopt;
}

DenseRows dense_rows(std::span<const std::int64_t> ids, std::uint64_t num_nodes) {
    if (num_nodes >= none) throw std::length_error("a trace of 2^32 nodes or more");
    std::vector<std::uint32_t> number(num_nodes, none);
    DenseRows dense{{}, 0};
    dense.rows.reserve(ids.size());
    for (const std::int64_t id : ids) {
        if (static_cast<std::uint64_t>(id) >= num_nodes) {
            throw std::out_of_range("row " + std::to_string(id) + " of " + std::to_string(num_nodes));
        }
        auto& given = number[static_cast<std::size_t>(id)];
        if (given == none) given = dense.num_rows++;
        dense.rows.push_back(given);
    }
    return dense;
}

void check(const AccessTrace& trace) {
    const auto& begins = trace.begins;
    check_offsets(begins, trace.rows.size(), "the mini-batches' accesses");
    if (begins.size() >= none || trace.num_rows == none) throw std::invalid_argument("the trace is too large");
    if (std::ranges::any_of(trace.rows, [&](std::uint32_t row) { return row >= trace.num_rows; })) {
        throw std::invalid_argument("a row is out of range");
    }
    std::vector<std::uint32_t> seen(trace.num_rows, none);
    for (std::uint32_t batch = 0; batch < trace.num_batches(); ++batch) {
        for (auto i = begins[batch]; i < begins[batch + 1]; ++i) {
            if (std::exchange(seen[trace.rows[static_cast<std::size_t>(i)]], batch) == batch) {
                throw std::invalid_argument("a row occurs twice in a mini-batch");
            }
        }
    }
}

std::vector<std::uint64_t> lru_hits(const AccessTrace& trace) {
    std::vector<std::uint64_t> hits(std::size_t{trace.num_rows} + 1);
    const std::size_t window = std::bit_ceil(std::max<std::size_t>(2 * std::size_t{trace.num_rows}, 4096));
    LiveTimes live(window);
    std::vector<std::uint32_t> row_at(window);
    std::vector<std::uint32_t> last(trace.num_rows, none);
    std::size_t now = 0;
    for (const std::uint32_t row : trace.rows) {
        if (now == window) {  // the window is full: close the gaps
            now = 0;
            std::vector<std::uint32_t> order;
            order.reserve(trace.num_rows);
            for (std::size_t at = 0; at < window; ++at) {
                if (live.has(at)) order.push_back(row_at[at]);
            }
            live.reset();
            for (const std::uint32_t kept : order) {
                live.set(now);
                row_at[now] = kept;
                last[kept] = static_cast<std::uint32_t>(now++);
            }
        }
        if (last[row] != none) {
            ++hits[live.behind(last[row]) + 1];
            live.clear(last[row]);
        }
        live.set(now);
        row_at[now] = row;
        last[row] = static_cast<std::uint32_t>(now++);
    }
    return hits;
}

// After a mini-batch, a cache of c rows keeps the c rows used again soonest among its own rows and the mini-batch's.
// The contents of all sizes are nested, so one list holds them: its first c entries are the cache of c rows. Going down
// the list, each level takes the soonest of its candidates: the mini-batch's rows and the rows that the levels above
// gave up. A row that hits leaves a hole in its level, which the first candidate fills.
std::vector<std::uint64_t> belady_hits(const AccessTrace& trace) {
    std::vector<std::uint64_t> hits(std::size_t{trace.num_rows} + 1);
    const auto next = next_uses(trace);
    struct Entry {
        std::uint32_t next;  // `none`: a hole
        std::uint32_t row;
    };
    std::vector<Entry> list;
    std::vector<std::uint32_t> level_of(trace.num_rows, none);
    Soonest entering(trace.num_rows, trace.num_batches());
    for (std::uint32_t batch = 0; batch < trace.num_batches(); ++batch) {
        const auto begin = static_cast<std::size_t>(trace.begins[batch]);
        const auto end = static_cast<std::size_t>(trace.begins[batch + 1]);
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint32_t row = trace.rows[i];
            const std::uint32_t level = std::exchange(level_of[row], none);
            if (level != none) {
                ++hits[level + 1];
                list[level].next = none;
            }
            if (next[i] != none) entering.push(row, next[i]);
        }
        entering.start(batch);
        std::uint32_t soonest = entering.empty() ? none : entering.soonest();
        for (std::uint32_t level = 0; soonest != none; ++level) {
            if (level == list.size()) list.push_back({none, 0});
            Entry& here = list[level];
            if (here.next <= soonest) continue;
            const Entry given_up = here;
            here = {soonest, entering.pop()};
            level_of[here.row] = level;
            if (given_up.next != none) {
                level_of[given_up.row] = none;
                entering.push(given_up.row, given_up.next);
            }
            soonest = entering.empty() ? none : entering.soonest();
        }
        while (!list.empty() && list.back().next == none) list.pop_back();
    }
    return hits;
}

std::vector<std::int64_t> policy_misses(Policy policy, const AccessTrace& trace, std::span<const std::int64_t> sizes,
                                        unsigned threads) {
    check(trace);
    std::vector<std::int64_t> misses(sizes.size());
    if (policy == Policy::belady || policy == Policy::lru) {
        auto hits = policy == Policy::lru ? lru_hits(trace) : belady_hits(trace);
        for (std::size_t d = 1; d < hits.size(); ++d) hits[d] += hits[d - 1];
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const auto size = std::min<std::uint64_t>(static_cast<std::uint64_t>(std::max<std::int64_t>(0, sizes[i])), trace.num_rows);
            misses[i] = static_cast<std::int64_t>(trace.rows.size() - hits[size]);
        }
        return misses;
    }
    const auto workers = static_cast<int>(std::min<std::size_t>(threads, sizes.size()));
    parallel_for(static_cast<std::int64_t>(sizes.size()), 1, workers, [&](std::int64_t begin, std::int64_t end, int) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
            const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(0, sizes[i]));
            misses[i] = static_cast<std::int64_t>(demand_misses(policy, trace, size));
        }
    });
    return misses;
}

}  // namespace outcore
