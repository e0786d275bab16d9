// Changeset planner: a look-back pass finds next uses, then a simulation keeps the cache as buckets by next use.
#include "cache/changeset.hpp"

#include <stdexcept>

#include "base/team.hpp"

namespace outcore {
namespace {

constexpr size_t chunk = 1 << 14;
constexpr size_t ahead = 16;  // accesses between a prefetch and its use
constexpr u32 none_narrow = 0xffff;

bool fits_narrow(u64 batches) { return batches < none_narrow; }

}  // namespace

ChangesetPlanner::ChangesetPlanner(u64 num_nodes, u64 capacity, Ids batch_sizes, unsigned threads)
    : num_nodes_(num_nodes),
      capacity_(std::min(capacity, num_nodes)),
      threads_(std::max(threads, 1U)),
      narrow_(fits_narrow(batch_sizes.size())),
      due_(static_cast<u32>(batch_sizes.size())) {
    if (num_nodes >= none || batch_sizes.size() >= in_cache)
        throw std::invalid_argument("2^32 nodes or 2^31 batches, or more");
    if (capacity_ > 0x7fffffff) throw std::invalid_argument("2^31 cached rows or more");
    starts_.reserve(batch_sizes.size() + 1);
    starts_.push_back(0);
    for (const i64 size : batch_sizes) {
        if (size < 0 || static_cast<u64>(size) > num_nodes)
            throw std::invalid_argument("a mini-batch is larger than the graph");
        starts_.push_back(starts_.back() + static_cast<u64>(size));
    }
    digests_.assign(batch_sizes.size(), 0);
    if (narrow_) next_narrow_ = PageArray<u16>(starts_.back());
    else next_wide_ = PageArray<u32>(starts_.back());
    of_node_ = PageArray<u32>(num_nodes);
    std::fill(of_node_.begin(), of_node_.end(), none);
    lanes_.resize(lane_count);
    for (Lane& lane : lanes_) {
        lane.bucket.assign(batch_sizes.size(), -1);
        lane.present.assign(batch_sizes.size(), 0);
        lane.arriving.assign(batch_sizes.size(), 0);
    }
    // Only a planner without batches skips look_back; empty batches take their turn.
    if (due_ == 0) phase_ = Phase::fill;
}

u64 ChangesetPlanner::bytes(u64 num_nodes, u64 capacity, u64 accesses, u64 batches) {
    return 4 * num_nodes + 12 * std::min(capacity, num_nodes) + (fits_narrow(batches) ? 2 : 4) * accesses +
           (16 + 12 * lane_count) * (batches + 1);
}

u64 ChangesetPlanner::memory_bytes() const {
    u64 lanes = 0;
    for (const Lane& lane : lanes_)
        lanes += 4 * (lane.bucket.capacity() + lane.present.capacity() + lane.arriving.capacity() +
                      lane.incoming.capacity() + lane.freed.capacity());
    return next_narrow_.bytes() + next_wide_.bytes() + of_node_.bytes() + node_in_.bytes() + link_.bytes() +
           free_.bytes() + 8 * (starts_.capacity() + digests_.capacity()) + lanes;
}

u32 ChangesetPlanner::next_use(u64 access) const {
    if (!narrow_) return next_wide_[access];
    const u32 found = next_narrow_[access];
    return found == none_narrow ? none : found;
}

void ChangesetPlanner::set_next_use(u64 access, u32 batch) {
    if (narrow_) next_narrow_[access] = static_cast<u16>(batch);  // `none` becomes `none_narrow`
    else next_wide_[access] = batch;
}

void ChangesetPlanner::check(Phase phase, u32 batch, Ids nodes) const {
    if (phase != phase_ || batch != due_ || batch + 1 >= starts_.size())
        throw std::invalid_argument("a batch out of turn");
    if (nodes.size() != starts_[batch + 1] - starts_[batch])
        throw std::invalid_argument("a batch of another size than announced");
    // Later passes follow links that look_back set: with other nodes they would access memory outside the arrays.
    if (phase != Phase::back && digest(nodes) != digests_[batch])
        throw std::invalid_argument("a batch of other nodes than look_back was given");
}

u64 ChangesetPlanner::digest(Ids nodes) const {
    std::atomic<u64> sum{0};
    parallel(nodes.size(), chunk, threads_, [&](size_t begin, size_t end, int) {
        u64 part = 0;
        for (size_t i = begin; i < end; ++i) {
            u64 mixed = (static_cast<u64>(nodes[i]) + i * 0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93;
            mixed ^= mixed >> 32;
            part += mixed * 0xd6e8feb86659fd93;
        }
        sum += part;
    });
    return sum;
}

void ChangesetPlanner::look_back(u32 batch, Ids nodes) {
    if (due_ == 0) throw std::invalid_argument("a batch out of turn");
    --due_;
    check(Phase::back, batch, nodes);
    std::atomic<int> wrong{0};
    const u64 first = starts_[batch];
    parallel(nodes.size(), chunk, threads_, [&](size_t begin, size_t end, int) {
        for (size_t i = begin; i < end; ++i) {
            if (i + ahead < end) {
                const auto soon = static_cast<u64>(nodes[i + ahead]);
                if (soon < num_nodes_) __builtin_prefetch(&of_node_[soon], 1);
            }
            const auto node = static_cast<u64>(nodes[i]);
            if (node >= num_nodes_) {
                wrong = 1;
                return;
            }
            u32& upcoming = of_node_[node];
            if (upcoming == batch) {
                wrong = 2;
                return;
            }
            set_next_use(first + i, upcoming);
            upcoming = batch;
        }
    });
    if (wrong == 1) throw std::out_of_range("a node that is not in the graph");
    if (wrong == 2) throw std::invalid_argument("a node occurs twice in a mini-batch");
    digests_[batch] = digest(nodes);
    if (due_ == 0) phase_ = Phase::fill;
}

bool ChangesetPlanner::fill(u32 batch, Ids nodes) {
    check(Phase::fill, batch, nodes);
    for (size_t i = 0; i < nodes.size() && filled_ < capacity_; ++i) {
        if (i + ahead < nodes.size()) __builtin_prefetch(&of_node_[static_cast<u64>(nodes[i + ahead])], 1);
        const auto node = static_cast<u64>(nodes[i]);
        if (of_node_[node] != batch) continue;  // first used by an earlier batch
        of_node_[node] |= in_cache;
        ++filled_;
    }
    ++due_;
    return filled_ == capacity_ || due_ + 1 == starts_.size();
}

void ChangesetPlanner::begin(std::span<const u32> resident) {
    if (phase_ != Phase::fill) throw std::invalid_argument("begin out of turn");
    if (resident.size() > capacity_) throw std::invalid_argument("there are more resident rows than slots");
    node_in_ = PageArray<u32>(capacity_);
    link_ = PageArray<i32>(capacity_);
    free_ = PageArray<i32>(capacity_);
    std::fill(node_in_.begin(), node_in_.end(), none);
    const auto wanted = [&](u64 node) { return of_node_[node] != none && (of_node_[node] & in_cache) != 0; };
    const auto place = [&](u32 node, size_t slot) {
        const u32 first = of_node_[node] & ~in_cache;
        of_node_[node] = static_cast<u32>(slot);
        node_in_[slot] = node;
        link(lanes_[0], static_cast<i32>(slot), first);
    };
    for (u64 node = 0; node < num_nodes_; ++node)
        if (!wanted(node)) of_node_[node] = none;
    for (size_t slot = 0; slot < resident.size(); ++slot)
        if (resident[slot] < num_nodes_ && wanted(resident[slot])) place(resident[slot], slot);
    size_t next = 0;
    for (u64 node = 0; node < num_nodes_; ++node) {
        if (!wanted(node)) continue;
        while (node_in_[next] != none) ++next;
        place(static_cast<u32>(node), next);
    }
    held_ = filled_;
    for (u64 slot = capacity_; slot-- > 0;)
        if (node_in_[slot] == none) free_[num_free_++] = static_cast<i32>(slot);
    phase_ = Phase::forward;
    due_ = 0;
}

std::vector<i64> ChangesetPlanner::held(u64 begin, u64 end) const {
    if (phase_ != Phase::forward || (due_ != 0 && due_ + 1 != starts_.size()))
        throw std::invalid_argument("held out of turn");
    end = std::min(end, capacity_);
    std::vector<i64> found;
    for (u64 slot = begin; slot < end; ++slot) found.push_back(node_in_[slot] == none ? -1 : i64{node_in_[slot]});
    return found;
}

void ChangesetPlanner::link(Lane& lane, i32 slot, u32 next) {
    link_[static_cast<size_t>(slot)] = lane.bucket[next];
    lane.bucket[next] = slot;
    ++lane.present[next];
    lane.furthest = std::max(lane.furthest, next);
}

// Finds the hits and misses in a lane's part of a batch; hits move to the bucket of their next use.
void ChangesetPlanner::look_up(Lane& lane, u64 first, Ids nodes, size_t begin, size_t end, std::span<i32> slots) {
    for (size_t block = begin; block < end; block += 4 * ahead) {
        const size_t stop = std::min(end, block + 4 * ahead);
        for (size_t i = block; i < stop; ++i) {
            if (i + ahead < end) __builtin_prefetch(&of_node_[static_cast<u64>(nodes[i + ahead])], 1);
            const auto slot = static_cast<i32>(of_node_[static_cast<u64>(nodes[i])]);  // `none`: -1
            slots[i] = slot;
            if (slot >= 0) __builtin_prefetch(&link_[static_cast<size_t>(slot)], 1);
        }
        for (size_t i = block; i < stop; ++i) {
            const i32 slot = slots[i];
            const u32 next = next_use(first + i);
            if (slot < 0) {
                if (next == none) continue;
                lane.incoming.push_back(static_cast<u32>(i));
                ++lane.arriving[next];
                lane.furthest = std::max(lane.furthest, next);
                continue;
            }
            ++lane.hits;
            if (next != none) {
                link(lane, slot, next);
                ++lane.kept;
            } else {
                of_node_[static_cast<size_t>(nodes[i])] = none;
                lane.freed.push_back(slot);
            }
        }
    }
}

Changeset ChangesetPlanner::advance(u32 batch, Ids nodes) {
    check(Phase::forward, batch, nodes);
    Changeset result;
    result.slots.resize(nodes.size());
    // Every row in this batch's bucket is a hit, which look_up moves to the bucket of its next use or frees.
    for (Lane& lane : lanes_) {
        held_ -= lane.present[batch];
        lane.present[batch] = 0;
        lane.bucket[batch] = -1;
        lane.incoming.clear();
        lane.freed.clear();
        lane.hits = lane.kept = 0;
    }
    const size_t part = std::max((nodes.size() + lane_count - 1) / lane_count, chunk / 4);
    parallel(nodes.size(), part, threads_, [&](size_t begin, size_t end, int) {
        look_up(lanes_[begin / part], starts_[batch], nodes, begin, end, result.slots);
    });
    for (const Lane& lane : lanes_) {
        result.hits += lane.hits;
        held_ += lane.kept;
        std::copy(lane.freed.begin(), lane.freed.end(), free_.begin() + num_free_);
        num_free_ += lane.freed.size();
    }
    choose(nodes, batch, result);
    ++due_;
    return result;
}

// Evicts `count` of the rows that batch `next` uses next.
void ChangesetPlanner::evict(u32 next, u64 count, Changeset& result) {
    held_ -= count;
    result.evictions += count;
    for (Lane& lane : lanes_) {
        i32 slot = lane.bucket[next];
        for (; slot >= 0 && count > 0; --count) {
            of_node_[node_in_[static_cast<size_t>(slot)]] = none;
            free_[num_free_++] = slot;
            --lane.present[next];
            slot = link_[static_cast<size_t>(slot)];
        }
        lane.bucket[next] = slot;
    }
}

void ChangesetPlanner::choose(Ids nodes, u32 batch, Changeset& result) {
    u64 wanted = held_;
    for (const Lane& lane : lanes_) wanted += lane.incoming.size();
    if (wanted == held_) return;
    const u64 first = starts_[batch];
    u32 limit = none;  // rows next used before this batch enter, and `quota` of the rows next used by it
    u64 quota = 0;
    if (wanted > capacity_) {
        u64 over = wanted - capacity_;
        u32 next = 0;
        for (const Lane& lane : lanes_) next = std::max(next, lane.furthest);
        for (;; --next) {
            u64 arriving = 0, present = 0;
            for (const Lane& lane : lanes_) {
                arriving += lane.arriving[next];
                present += lane.present[next];
            }
            limit = next;
            if (over < arriving + present) {
                const u64 bypassed = std::min(over, arriving);
                evict(next, over - bypassed, result);
                quota = arriving - bypassed;
                break;
            }
            evict(next, present, result);
            over -= arriving + present;
            if (over == 0) break;  // no row next used by `limit` stays or enters
        }
        for (Lane& lane : lanes_) lane.furthest = std::min(lane.furthest, limit);
    }
    result.in_positions.reserve(std::min<u64>(num_free_, wanted - held_));
    result.in_slots.reserve(result.in_positions.capacity());
    for (Lane& lane : lanes_) {
        for (size_t k = 0; k < lane.incoming.size(); ++k) {
            if (k + ahead < lane.incoming.size()) {
                __builtin_prefetch(&of_node_[static_cast<size_t>(nodes[lane.incoming[k + ahead]])], 1);
                if (num_free_ > ahead) {
                    const auto soon = static_cast<size_t>(free_[num_free_ - ahead]);
                    __builtin_prefetch(&node_in_[soon], 1);
                    __builtin_prefetch(&link_[soon], 1);
                }
            }
            const u32 position = lane.incoming[k];
            const u32 next = next_use(first + position);
            lane.arriving[next] = 0;
            if (next > limit || (next == limit && quota == 0)) continue;
            if (next == limit) --quota;
            const i32 slot = free_[--num_free_];
            const auto node = static_cast<size_t>(nodes[position]);
            node_in_[static_cast<size_t>(slot)] = static_cast<u32>(node);
            of_node_[node] = static_cast<u32>(slot);
            link(lane, slot, next);
            ++held_;
            result.in_positions.push_back(static_cast<i32>(position));
            result.in_slots.push_back(slot);
        }
    }
}

}  // namespace outcore
