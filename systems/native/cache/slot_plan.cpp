// Three passes: over all uses by node, to find the next use of each row; over the pairs of mini-batches, to decide how
// many rows of each pair are kept; over all uses by mini-batch, to give each row its slot.
#include "cache/slot_plan.hpp"

#include "base/radix.hpp"
#include "base/refuse.hpp"
#include "base/xxh3.hpp"

namespace outcore {
namespace {

constexpr u64 group_uses = 1 << 14;  // sorted at a time by all threads, within the processor's cache
constexpr int coarse_bits = 8;
constexpr std::ptrdiff_t short_run = 64;
constexpr size_t most_runs = 16;
constexpr u64 sampled_uses = 64;  // one use in so many is sampled, to divide nodes evenly
constexpr size_t least_shared = 1 << 15;
constexpr u32 most_window = 1 << 16;

constexpr u64 array_align = 64, list_align = 4096;

// Sorts uses by node (the upper half; nodes in [first, last)); stable, so uses of one node keep their order.
void sort_by_node(std::vector<u64>& uses, std::vector<u64>& other, u64 first, u64 last) {
    radix_sort<8>(uses, other, last - first - 1, [first](u64 use) { return (use >> 32) - first; });
}

// Sorts values of some short ascending runs, then a few long ones: the seed nodes and each hop's new nodes.
void sort_runs(std::vector<u64>& values) {
    const auto begin = values.begin(), end = values.end();
    const auto run_end = [&](auto at) { return std::is_sorted_until(at, end); };
    auto sorted = begin;
    for (auto next = run_end(begin); next != end && next - sorted < short_run; next = run_end(next)) sorted = next;
    std::sort(begin, sorted);
    for (size_t runs = 0; sorted != end; ++runs) {
        if (runs == most_runs) return std::sort(begin, end);
        const auto next = run_end(sorted);
        std::inplace_merge(begin, sorted, next);
        sorted = next;
    }
}

void free_memory(std::initializer_list<std::vector<u32>*> lists) {
    for (auto* list : lists) std::vector<u32>().swap(*list);
}

// Returns the number of parts of the nodes: fewer for many mini-batches, since each part counts all their pairs.
u32 parts(u64 batches, u32 threads) { return std::min(threads, batches <= 256 ? 8U : 2U); }

}  // namespace

SlotPlanner::SlotPlanner(u32 slots, u32 window, bool keep, u32 threads)
    : slots_(slots), window_(window), keep_(keep), threads_(threads), held_(slots, none), free_at_(slots, 0) {
    if (threads == 0) throw std::invalid_argument("a plan needs at least one thread");
    if (window == 0 || window > most_window) throw std::invalid_argument("a window has 1 to 65,536 mini-batches");
    if (slots >= fresh_bit) throw std::invalid_argument("a table has fewer than 2^31 slots");
}

u64 SlotPlanner::bytes(u64 slots, u64 batches, u64 accesses, u32 threads) {
    return 24 * slots + 8 * accesses + std::max(8U, 4 * parts(batches, threads)) * (batches + 8) * (batches + 8) +
           32 * group_uses + 8 * (slots + batches);
}

void SlotPlanner::pin(std::span<const u32> nodes) {
    if (pinned_ > 0 || std::ranges::any_of(held_, [](u32 node) { return node != none; }))
        throw std::invalid_argument("rows are pinned once, before the first plan");
    if (nodes.size() > slots_)
        refuse<std::invalid_argument>(nodes.size(), " rows to pin, there are ", slots_, " slots");
    std::vector<u32> sorted(nodes.begin(), nodes.end());
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end()) throw std::invalid_argument("a row is pinned twice");
    std::ranges::copy(nodes, held_.begin());
    pinned_ = static_cast<u32>(nodes.size());
    pins_to_read_ = pinned_ > 0;
}

u32 SlotPlanner::batch_of(u32 access) const {
    u32 batch = coarse_[access >> coarse_bits];
    while (offsets_[batch + 1] <= access) ++batch;
    return batch;
}

void SlotPlanner::plan(std::span<const u32> nodes, Ids offsets, Ids seeds, bool direct) {
    check_offsets(offsets, nodes.size(), "the mini-batches' nodes");
    if (seeds.size() + 1 != offsets.size())
        refuse<std::invalid_argument>("there are ", seeds.size(), " seed counts for ", offsets.size() - 1,
                                      " mini-batches");
    for (size_t b = 0; b < seeds.size(); ++b)
        if (seeds[b] < 0 || seeds[b] > offsets[b + 1] - offsets[b])
            refuse<std::invalid_argument>("mini-batch ", b, " of ", offsets[b + 1] - offsets[b], " nodes has ",
                                          seeds[b], " seed nodes");
    if (nodes.size() >= none - 16) throw std::invalid_argument("too many uses for one plan");
    nodes_ = nodes;
    offsets_.assign(offsets.begin(), offsets.end());
    seeds_ = seeds;
    batches_ = static_cast<u32>(offsets.size() - 1);
    columns_ = batches_ + tails;
    hits_ = carried_ = 0;
    coarse_.assign((nodes.size() >> coarse_bits) + 1, 0);
    for (u32 b = 0, i = 0; i < coarse_.size(); ++i) {
        while (b + 1 < batches_ && offsets_[b + 1] <= static_cast<i64>(u64{i} << coarse_bits)) ++b;
        coarse_[i] = b;
    }
    pairs_.assign((size_t{batches_} + window_) * columns_, 0);
    next_.assign(nodes.size(), none);
    held_next_.assign(slots_, none);
    place_.assign(nodes.size(), none);
    missed_ = {};
    missed_begin_.assign(1, 0);
    direct_ = {};
    direct_pins_ = false;
    Team team(nodes.size() < least_shared ? 1 : static_cast<int>(threads_));
    find_next(team);
    decide();
    direct_pins_ = std::exchange(pins_to_read_, false);
    assign(direct);
    // The queries after a plan need only places.
    free_memory({&next_, &held_next_, &pairs_, &coarse_});
    order_misses(team);
}

void SlotPlanner::clear() {
    free_memory({&next_, &held_next_, &place_, &pairs_, &coarse_, &missed_, &direct_});
    missed_begin_.clear();
    direct_pins_ = false;
    nodes_ = {};
    batches_ = 0;
}

// All uses as ascending runs of nodes.
struct SlotPlanner::Uses {
    std::vector<Cursor> runs;
    std::vector<size_t> run_begin;
    std::vector<u32> seed_order;  // accesses of seed nodes, sorted by node within their mini-batch
    std::vector<size_t> seed_begin;
    std::vector<u64> old;  // rows of the previous call: node << 32 | slot, by node
};

// Finds next_ and counts the pairs. `none - 1 - c` in next_ marks the last use of a row of class c.
void SlotPlanner::find_next(Team& team) {
    Uses all;
    all.run_begin.assign(batches_ + 1, 0);
    all.seed_begin.assign(batches_ + 1, 0);
    const auto by_node = [&](auto x, auto y) { return nodes_[x] < nodes_[y]; };
    for (u32 b = 0; b < batches_; ++b) {
        const auto first = static_cast<u32>(offsets_[b]), last = static_cast<u32>(offsets_[b + 1]);
        const auto middle = first + static_cast<u32>(std::min<i64>(seeds_[b], last - first));
        const size_t begin = all.seed_order.size();
        for (u32 i = first; i < middle; ++i) all.seed_order.push_back(i);
        std::sort(all.seed_order.begin() + static_cast<std::ptrdiff_t>(begin), all.seed_order.end(), by_node);
        all.seed_begin[b + 1] = all.seed_order.size();
        for (u32 i = middle; i < last;) {
            u32 stop = i + 1;
            while (stop < last && nodes_[stop] > nodes_[stop - 1]) ++stop;
            all.runs.push_back({i, stop});
            i = stop;
        }
        all.run_begin[b + 1] = all.runs.size();
    }
    const u32 looked_up = keep_ ? slots_ : pinned_;
    for (u32 s = 0; s < looked_up; ++s)
        if (held_[s] != none) all.old.push_back(u64{held_[s]} << 32 | s);
    if (!all.old.empty()) {
        std::vector<u64> other;
        sort_by_node(all.old, other, 0, none);
    }
    // Divide the nodes into parts with equal numbers of uses.
    const u32 count = team.size() == 1 ? 1 : parts(batches_, static_cast<u32>(team.size()));
    std::vector<u32> sample;
    for (size_t i = 0; i < nodes_.size(); i += sampled_uses) sample.push_back(nodes_[i]);
    std::sort(sample.begin(), sample.end());
    std::vector<u64> bounds{0};
    for (size_t p = 1; p < count; ++p)
        bounds.push_back(std::max<u64>(bounds.back(), sample[sample.size() * p / count]));
    bounds.push_back(nodes_.empty() ? 0 : u64{*std::ranges::max_element(nodes_)} + 1);
    std::vector<std::vector<u32>> counted(count);
    team.share(count, [&](size_t p) {
        counted[p].assign(pairs_.size(), 0);
        find_next_of(all, bounds[p], bounds[p + 1], group_uses / count, counted[p]);
    });
    for (const auto& pairs : counted)
        for (size_t i = 0; i < pairs.size(); ++i) pairs_[i] += pairs[i];
}

void SlotPlanner::find_next_of(const Uses& all, u64 from, u64 stop_node, u64 group, std::vector<u32>& pairs) {
    std::vector<Cursor> runs = all.runs;
    std::vector<size_t> seed_at(all.seed_begin.begin(), all.seed_begin.end() - 1);
    size_t old_at = 0;
    if (from > 0) {
        for (auto& run : runs) {
            const auto* const first = nodes_.data() + run.begin;
            run.begin += static_cast<u32>(std::lower_bound(first, nodes_.data() + run.end, from) - first);
        }
        for (u32 b = 0; b < batches_; ++b)
            while (seed_at[b] < all.seed_begin[b + 1] && nodes_[all.seed_order[seed_at[b]]] < from) ++seed_at[b];
    }
    std::vector<u64> found, other;  // node << 32 | access
    u64 width = 64;                 // few at first: the most popular nodes of generated graphs come first
    for (u64 first = from; first < stop_node;) {
        const u64 last = std::min(stop_node, first + width);
        found.clear();
        // In the order of mini-batches, which the stable sort keeps; a node occurs once in each.
        for (u32 b = 0; b < batches_; ++b) {
            for (auto& at = seed_at[b]; at < all.seed_begin[b + 1] && nodes_[all.seed_order[at]] < last; ++at)
                found.push_back(u64{nodes_[all.seed_order[at]]} << 32 | all.seed_order[at]);
            for (size_t r = all.run_begin[b]; r < all.run_begin[b + 1]; ++r)
                for (auto& run = runs[r]; run.begin < run.end && nodes_[run.begin] < last; ++run.begin)
                    found.push_back(u64{nodes_[run.begin]} << 32 | run.begin);
        }
        sort_by_node(found, other, first, last);
        for (size_t i = 0; i < found.size();) {
            const auto node = static_cast<u32>(found[i] >> 32);
            const auto head = static_cast<u32>(found[i]);
            while (old_at < all.old.size() && all.old[old_at] >> 32 < node) ++old_at;
            if (old_at < all.old.size() && all.old[old_at] >> 32 == node) {
                const auto slot = static_cast<u32>(all.old[old_at++]);
                if (slot < pinned_) {
                    for (; i < found.size() && static_cast<u32>(found[i] >> 32) == node; ++i)
                        place_[static_cast<u32>(found[i])] = slot;
                    continue;
                }
                held_next_[slot] = head;
                ++pairs[pair_at(static_cast<i64>(free_at_[slot]) - window_, batch_of(head))];
            }
            size_t stop = i + 1;
            u32 batch = batch_of(head);
            while (stop < found.size() && static_cast<u32>(found[stop] >> 32) == node) {
                const auto access = static_cast<u32>(found[stop]);
                next_[static_cast<u32>(found[stop - 1])] = access;
                const u32 later = batch_of(access);
                ++pairs[pair_at(batch, later)];
                batch = later;
                ++stop;
            }
            const auto tail = tails - static_cast<u32>(std::min<size_t>(stop - i, tails));
            next_[static_cast<u32>(found[stop - 1])] = none - 1 - tail;
            ++pairs[pair_at(batch, batches_ + tail)];
            i = stop;
        }
        if (found.size() > 2 * group) width = std::max<u64>(1, width / 2);
        if (found.size() < group / 2) width *= 2;
        first = last;
    }
}

// Replaces `pairs_` by the number of rows of each pair to keep. A row used by t and next by e needs an extra slot from
// t + window to e - 1; before, its slot is in use, and at e it is a row of that mini-batch.
void SlotPlanner::decide() {
    const auto window = static_cast<i64>(window_);
    std::vector<u64> active(columns_, 0);  // kept rows by next use
    u64 total = 0;
    // Slots with a row of the previous call that is not used again but still in the window.
    std::vector<u64> waiting(window_ + 1, 0);
    const u64 slots = slots_ - pinned_;
    for (u32 s = pinned_; s < slots_; ++s)
        if (free_at_[s] > 0 && held_next_[s] == none) ++waiting[std::min(free_at_[s], window_)];
    for (i64 t = 0; t < batches_; ++t) {
        u64 busy = 0;
        for (i64 from = t - window + 1; from <= t; ++from)
            for (u32 to = static_cast<u32>(t) + 1; to < columns_; ++to) busy += pair(from, to);
        for (u32 f = static_cast<u32>(std::min<i64>(t + 1, window + 1)); f <= window_; ++f) busy += waiting[f];
        if (busy > slots)
            refuse<std::invalid_argument>("mini-batches ", t - window + 1, " to ", t, " use ", busy,
                                          " rows at a time, there are ", slots, " slots");
        total -= active[static_cast<size_t>(t)];
        active[static_cast<size_t>(t)] = 0;
        const i64 entering = t - window;
        for (u32 to = static_cast<u32>(t) + 1; to < columns_; ++to) {
            u32& count = pair(entering, to);
            if (!keep_) count = 0;
            active[to] += count;
            total += count;
        }
        const u64 room = slots - busy;
        for (u32 to = columns_ - 1; total > room; --to) {
            u64 evicted = std::min(active[to], total - room);
            active[to] -= evicted;
            total -= evicted;
            // The latest first: their slots were not yet in use, while earlier rows would have held theirs in vain.
            for (i64 from = entering; evicted > 0; --from) {
                u32& count = pair(from, to);
                const auto part = static_cast<u32>(std::min<u64>(count, evicted));
                count -= part;
                evicted -= part;
            }
        }
    }
    if (!keep_) {
        // Rows of the last mini-batches are not kept either.
        for (i64 from = -window; from < batches_; ++from)
            for (u32 to = batches_; to < columns_; ++to) pair(from, to) = 0;
    }
}

void SlotPlanner::assign(bool direct) {
    std::vector<u32> free, unused;
    std::vector<std::vector<u32>> freed(size_t{batches_} + window_);
    std::vector<u32> until(std::move(free_at_));
    free_at_.assign(slots_, 0);
    for (u32 s = 0; s < slots_; ++s)
        if (until[s] > batches_) free_at_[s] = until[s] - batches_;
    // Returns whether the row used by mini-batch `from` (below 0: of the previous call) stays in its slot for `next`.
    const auto stays = [&](i64 from, u32 next, u32 slot) {
        u32 to = 0;
        if (next >= none - tails) {
            if (next == none) return false;
            to = batches_ + (none - 1 - next);
        } else {
            to = batch_of(next);
            if (static_cast<i64>(to) <= from + window_) {
                place_[next] = slot;
                return true;
            }
        }
        u32& left = pair(from, to);
        if (left == 0) return false;
        --left;
        if (to < batches_) place_[next] = slot;
        return true;
    };
    for (u32 s = slots_; s-- > pinned_;) {
        const i64 from = static_cast<i64>(until[s]) - window_;
        if (keep_ && held_next_[s] != none && stays(from, held_next_[s], s)) continue;
        if (held_[s] == none) unused.push_back(s);
        else if (until[s] == 0) free.push_back(s);
        else freed[until[s]].push_back(s);
    }
    for (u32 t = 0; t < batches_; ++t) {
        const u64 read_before = hits_ + direct_.size();
        free.insert(free.end(), freed[t].begin(), freed[t].end());
        freed[t] = {};
        const auto last = static_cast<u32>(offsets_[t + 1]);
        for (auto i = static_cast<u32>(offsets_[t]); i < last; ++i) {
            u32 slot = place_[i];
            if (slot == none) {
                // Unused slots come first: their rows may be read beforehand, and rows of others stay longer.
                auto& from = unused.empty() ? free : unused;
                if (from.empty()) throw std::logic_error("a plan ran out of slots");
                const bool beforehand = direct && held_[from.back()] == none;
                slot = from.back();
                from.pop_back();
                place_[i] = beforehand ? slot : slot | fresh_bit;
                held_[slot] = nodes_[i];
                if (beforehand) direct_.push_back(i);
            } else if (direct_pins_ && slot < pinned_ && until[slot] != none) {
                direct_.push_back(i);
            } else {
                ++hits_;
                carried_ += until[slot] != none;
            }
            until[slot] = none;  // held by rows of this call from here on
            if (slot < pinned_) continue;
            if (!stays(t, next_[i], slot)) freed[t + window_].push_back(slot);
            if (t + window_ > batches_) free_at_[slot] = t + window_ - batches_;
        }
        missed_begin_.push_back(missed_begin_.back() + last - static_cast<u32>(offsets_[t]) -
                                (hits_ + direct_.size() - read_before));
    }
}

void SlotPlanner::order_misses(Team& team) {
    missed_.resize(missed_begin_.back());
    team.share(batches_, [&](size_t b) {
        std::vector<u64> found;  // node << 32 | access
        found.reserve(missed_begin_[b + 1] - missed_begin_[b]);
        for (auto a = static_cast<size_t>(offsets_[b]); a < static_cast<size_t>(offsets_[b + 1]); ++a)
            if ((place_[a] & fresh_bit) != 0) found.push_back(u64{nodes_[a]} << 32 | a);
        sort_runs(found);
        u32* to = missed_.data() + missed_begin_[b];
        for (const auto value : found) *to++ = static_cast<u32>(value);
    });
}

SlotMisses SlotPlanner::misses(size_t i) const {
    const std::span<const u32> found(missed_.data() + missed_begin_.at(i), missed_.data() + missed_begin_.at(i + 1));
    SlotMisses result;
    result.ids.reserve(found.size());
    result.slots.reserve(found.size());
    for (const auto access : found) {
        result.ids.push_back(nodes_[access]);
        result.slots.push_back(static_cast<i32>(place_[access] & ~fresh_bit));
    }
    return result;
}

DirectRows SlotPlanner::direct() const {
    std::vector<u64> found;  // node << 32 | slot
    found.reserve((direct_pins_ ? pinned_ : 0) + direct_.size());
    if (direct_pins_)
        for (u32 s = 0; s < pinned_; ++s) found.push_back(u64{held_[s]} << 32 | s);
    for (const auto access : direct_)
        if (place_[access] >= pinned_) found.push_back(u64{nodes_[access]} << 32 | place_[access]);
    std::ranges::sort(found);
    DirectRows result;
    result.ids.reserve(found.size());
    result.slots.reserve(found.size());
    for (const auto value : found) {
        result.ids.push_back(static_cast<u32>(value >> 32));
        result.slots.push_back(static_cast<i32>(value));
    }
    return result;
}

u64 SlotPlanner::direct_uses(u32 slots) const {
    return static_cast<u64>(std::ranges::count_if(direct_, [&](u32 access) { return place_[access] < slots; }));
}

std::vector<i64> SlotPlanner::miss_counts() const {
    std::vector<i64> result;
    result.reserve(batches_);
    for (size_t b = 0; b < batches_; ++b) result.push_back(static_cast<i64>(misses_of(b)));
    return result;
}

void SlotPlanner::copy_misses(std::span<u32> to) const {
    if (to.size() != missed_.size()) refuse<std::invalid_argument>("there are ", missed_.size(), " rows to be read");
    std::transform(missed_.begin(), missed_.end(), to.begin(), [&](auto access) { return nodes_[access]; });
}

std::vector<i64> SlotPlanner::sampled_misses(u64 region_rows, u64 every) const {
    if (region_rows == 0 || every == 0) throw std::invalid_argument("region_rows and every must be positive");
    std::vector<i64> result;
    u64 region = UINT64_MAX;
    bool taken = false;
    for (const auto access : missed_) {
        const u64 node = nodes_[access];
        if (node / region_rows != region) {
            region = node / region_rows;
            // A multiplicative hash scatters neighbouring regions.
            taken = (region * 0x9E3779B1 >> 15 & 0xFFFF) % every == 0;
        }
        if (taken) result.push_back(static_cast<i64>(node));
    }
    return result;
}

std::string SlotPlanner::list_header(size_t i) const {
    return "[[\"slots\",\"<i4\",[" + std::to_string(uses_of(i)) + "]],[\"to\",\"<i4\",[" +
           std::to_string(misses_of(i)) + "]]]";
}

u64 SlotPlanner::list_bytes(size_t i) const {
    return up_to(up_to(up_to(8 + list_header(i).size(), array_align) + 4 * uses_of(i), array_align) + 4 * misses_of(i),
                 list_align);
}

u64 SlotPlanner::write_list(size_t i, std::span<std::byte> to) const {
    const std::string header = list_header(i);
    const u64 bytes = list_bytes(i), length = header.size();
    if (to.size() < bytes) throw std::invalid_argument("the memory is too small for an address list");
    const u64 first = up_to(8 + length, array_align), second = up_to(first + 4 * uses_of(i), array_align);
    std::memcpy(to.data(), &length, 8);
    std::memcpy(to.data() + 8, header.data(), length);
    const auto clear = [&](u64 begin, u64 end) { std::memset(to.data() + begin, 0, end - begin); };
    clear(8 + length, first);
    std::byte* out = to.data() + first;
    const auto put = [&](u32 access) {
        const u32 slot = place_[access] & ~fresh_bit;
        std::memcpy(out, &slot, 4);
        out += 4;
    };
    for (auto a = offsets_[i]; a < offsets_[i + 1]; ++a) put(static_cast<u32>(a));
    clear(first + 4 * uses_of(i), second);
    out = to.data() + second;
    for (size_t k = missed_begin_[i]; k < missed_begin_[i + 1]; ++k) put(missed_[k]);
    clear(second + 4 * misses_of(i), bytes);
    return xxh3(to.first(bytes));
}

std::vector<i32> SlotPlanner::slots(size_t i) const {
    std::vector<i32> result;
    for (auto a = static_cast<size_t>(offsets_.at(i)); a < static_cast<size_t>(offsets_.at(i + 1)); ++a)
        result.push_back(static_cast<i32>(place_[a] & ~fresh_bit));
    return result;
}

}  // namespace outcore
