// Belady's replacement and LRU for all sizes at once, and the choice between a pass for all sizes and a pass a size.
#include "cache/policies.hpp"

#include <bit>

#include "base/refuse.hpp"
#include "base/team.hpp"

namespace outcore {
namespace {

constexpr u32 never = UINT32_MAX;

// Returns for each access the next mini-batch that uses its row, or `never`.
std::vector<u32> next_uses(const AccessTrace& trace) {
    std::vector<u32> next(trace.rows.size());
    std::vector<u32> upcoming(trace.num_rows, never);
    for (size_t batch = trace.num_batches(); batch-- > 0;) {
        for (size_t i = trace.begin(batch), end = trace.begin(batch + 1); i < end; ++i)
            next[i] = std::exchange(upcoming[trace.rows[i]], static_cast<u32>(batch));
    }
    return next;
}

// Queue of rows by the mini-batch of their next use, soonest first. No push is sooner than the last pop, so the search
// for the first non-empty mini-batch only moves forward.
class Soonest {
public:
    explicit Soonest(u32 num_rows, size_t num_batches)
        : head_(num_batches, never), link_(num_rows), filled_((num_batches + 63) / 64) {}

    bool empty() const { return size_ == 0; }

    void start(u32 batch) { current_ = batch; }

    void push(u32 row, u32 next) {
        link_[row] = std::exchange(head_[next], row);
        filled_[next / 64] |= u64{1} << (next % 64);
        ++size_;
    }

    u32 soonest() {
        if (head_[current_] == never) {
            size_t word = current_ / 64;
            u64 bits = filled_[word] & (~u64{0} << (current_ % 64));
            while (bits == 0) bits = filled_[++word];
            current_ = static_cast<u32>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
        }
        return current_;
    }

    u32 pop() {
        const u32 next = soonest();
        const u32 row = head_[next];
        head_[next] = link_[row];
        if (head_[next] == never) filled_[next / 64] &= ~(u64{1} << (next % 64));
        --size_;
        return row;
    }

private:
    std::vector<u32> head_, link_;
    std::vector<u64> filled_;
    u32 current_ = 0;
    size_t size_ = 0;
};

// Set of the positions in a window of time that are a row's last access; counts the positions behind one of them. Bits
// in blocks of 512, with a Fenwick tree over the blocks: small enough to stay in the nearest processor caches.
class LiveTimes {
public:
    explicit LiveTimes(size_t window) : words_(window / 64), tree_(window / block + 1) {}

    static constexpr size_t block = 512;

    void set(size_t at) {
        words_[at / 64] |= u64{1} << (at % 64);
        add(at / block, 1);
        ++total_;
    }

    void clear(size_t at) {
        words_[at / 64] &= ~(u64{1} << (at % 64));
        add(at / block, -1);
        --total_;
    }

    bool has(size_t at) const { return words_[at / 64] >> (at % 64) & 1; }

    size_t behind(size_t at) const {
        i64 before = 0;
        for (size_t i = at / block; i > 0; i &= i - 1) before += tree_[i];
        const size_t word = at / 64;
        for (size_t w = at / block * (block / 64); w < word; ++w) before += std::popcount(words_[w]);
        before += std::popcount(words_[word] & (~u64{0} >> (63 - at % 64)));
        return total_ - static_cast<size_t>(before);
    }

    void reset() {
        std::ranges::fill(words_, 0);
        std::ranges::fill(tree_, 0);
        total_ = 0;
    }

private:
    void add(size_t index, i32 delta) {
        for (size_t i = index + 1; i < tree_.size(); i += i & -i) tree_[i] += delta;
    }

    std::vector<u64> words_;
    std::vector<i32> tree_;
    size_t total_ = 0;
};

void check(const AccessTrace& trace) {
    check_offsets(trace.begins, trace.rows.size(), "the mini-batches' accesses");
    if (trace.begins.size() >= never || trace.num_rows == never) throw std::invalid_argument("the trace is too large");
    if (std::ranges::any_of(trace.rows, [&](u32 row) { return row >= trace.num_rows; }))
        throw std::invalid_argument("a row is out of range");
    std::vector<u32> seen(trace.num_rows, never);
    for (u32 batch = 0; batch < trace.num_batches(); ++batch)
        for (size_t i = trace.begin(batch), end = trace.begin(batch + 1); i < end; ++i)
            if (std::exchange(seen[trace.rows[i]], batch) == batch)
                throw std::invalid_argument("a row occurs twice in a mini-batch");
}

// Counts hits by the smallest cache that has them: element d has the accesses that hit in caches of d rows or more and
// in no smaller one. One pass for all sizes, since LRU and Belady's replacement are stack algorithms (Mattson, Gecsei,
// Slutz and Traiger 1970).
std::vector<u64> lru_hits(const AccessTrace& trace) {
    std::vector<u64> hits(size_t{trace.num_rows} + 1);
    const size_t window = std::bit_ceil(std::max<size_t>(2 * size_t{trace.num_rows}, 4096));
    LiveTimes live(window);
    std::vector<u32> row_at(window);
    std::vector<u32> last(trace.num_rows, never);
    size_t now = 0;
    for (const u32 row : trace.rows) {
        if (now == window) {  // the window is full: close the gaps
            now = 0;
            std::vector<u32> order;
            order.reserve(trace.num_rows);
            for (size_t at = 0; at < window; ++at)
                if (live.has(at)) order.push_back(row_at[at]);
            live.reset();
            for (const u32 kept : order) {
                live.set(now);
                row_at[now] = kept;
                last[kept] = static_cast<u32>(now++);
            }
        }
        if (last[row] != never) {
            ++hits[live.behind(last[row]) + 1];
            live.clear(last[row]);
        }
        live.set(now);
        row_at[now] = row;
        last[row] = static_cast<u32>(now++);
    }
    return hits;
}

// After a mini-batch, a cache of c rows keeps the c rows used again soonest among its own rows and the mini-batch's.
// The contents of all sizes are nested, so one list holds them: its first c entries are the cache of c rows. Going down
// the list, each level takes the soonest of its candidates: the mini-batch's rows and the rows that the levels above
// gave up. A row that hits leaves a hole in its level, which the first candidate fills.
std::vector<u64> belady_hits(const AccessTrace& trace) {
    std::vector<u64> hits(size_t{trace.num_rows} + 1);
    const auto next = next_uses(trace);
    struct Entry {
        u32 next;  // `never`: a hole
        u32 row;
    };
    std::vector<Entry> list;
    std::vector<u32> level_of(trace.num_rows, never);
    Soonest entering(trace.num_rows, trace.num_batches());
    for (u32 batch = 0; batch < trace.num_batches(); ++batch) {
        for (size_t i = trace.begin(batch), end = trace.begin(batch + 1); i < end; ++i) {
            const u32 row = trace.rows[i];
            const u32 level = std::exchange(level_of[row], never);
            if (level != never) {
                ++hits[level + 1];
                list[level].next = never;
            }
            if (next[i] != never) entering.push(row, next[i]);
        }
        entering.start(batch);
        u32 soonest = entering.empty() ? never : entering.soonest();
        for (u32 level = 0; soonest != never; ++level) {
            if (level == list.size()) list.push_back({never, 0});
            Entry& here = list[level];
            if (here.next <= soonest) continue;
            const Entry given_up = here;
            here = {soonest, entering.pop()};
            level_of[here.row] = level;
            if (given_up.next != never) {
                level_of[given_up.row] = never;
                entering.push(given_up.row, given_up.next);
            }
            soonest = entering.empty() ? never : entering.soonest();
        }
        while (!list.empty() && list.back().next == never) list.pop_back();
    }
    return hits;
}

}  // namespace

DenseRows dense_rows(Ids ids, u64 num_nodes) {
    if (num_nodes >= never) throw std::length_error("a trace of 2^32 nodes or more");
    std::vector<u32> number(num_nodes, never);
    DenseRows dense{{}, 0};
    dense.rows.reserve(ids.size());
    for (const i64 id : ids) {
        if (static_cast<u64>(id) >= num_nodes) refuse<std::out_of_range>("row ", id, " of ", num_nodes);
        auto& given = number[static_cast<size_t>(id)];
        if (given == never) given = dense.num_rows++;
        dense.rows.push_back(given);
    }
    return dense;
}

std::vector<i64> policy_misses(std::string_view policy, const AccessTrace& trace, Ids sizes, unsigned threads) {
    check(trace);
    std::vector<i64> misses(sizes.size());
    if (policy == "belady" || policy == "lru") {
        auto hits = policy == "lru" ? lru_hits(trace) : belady_hits(trace);
        for (size_t d = 1; d < hits.size(); ++d) hits[d] += hits[d - 1];
        for (size_t i = 0; i < sizes.size(); ++i) {
            const auto size = std::min<u64>(static_cast<u64>(std::max<i64>(0, sizes[i])), trace.num_rows);
            misses[i] = static_cast<i64>(trace.rows.size() - hits[size]);
        }
        return misses;
    }
    const CountMisses count = demand_policy(policy);
    parallel(static_cast<i64>(sizes.size()), 1, threads, [&](size_t i, size_t, int) {
        misses[i] = static_cast<i64>(count(trace, static_cast<u64>(std::max<i64>(0, sizes[i]))));
    });
    return misses;
}

}  // namespace outcore
