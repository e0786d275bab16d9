// The changeset planner: next uses in a look-back pass, then a simulation whose cache is buckets by next use.
#include "changeset.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>

#include "task_pool.hpp"

namespace outcore {
namespace {

constexpr std::size_t chunk = 1 << 14;
constexpr std::size_t ahead = 16;  // accesses between a prefetch and its use
constexpr std::uint32_t none_narrow = 0xffff;

bool fits_narrow(std::uint64_t batches) { return batches < none_narrow; }

}  // namespace

ChangesetPlanner::ChangesetPlanner(std::uint64_t num_nodes, std::uint64_t capacity,
                                   std::span<const std::int64_t> batch_sizes, unsigned threads)
    : num_nodes_(num_nodes),
      capacity_(std::min(capacity, num_nodes)),
      threads_(std::max(threads, 1U)),
      narrow_(fits_narrow(batch_sizes.size())),
      due_(static_cast<std::uint32_t>(batch_sizes.size())) {
    if (num_nodes >= none || batch_sizes.size() >= in_cache) throw std::invalid_argument("2^32 nodes or 2^31 batches, or more");
    if (capacity_ > 0x7fffffff) throw std::invalid_argument("2^31 cached rows or more");
    starts_.reserve(batch_sizes.size() + 1);
    starts_.push_back(0);
    for (const std::int64_t size : batch_sizes) {
        if (size < 0 || static_cast<std::uint64_t>(size) > num_nodes) throw std::invalid_argument("a batch has a size that cannot be");
        starts_.push_back(starts_.back() + static_cast<std::uint64_t>(size));
    }
    if (narrow_) {
        next_narrow_.resize(starts_.back());
    } else {
        next_wide_.resize(starts_.back());
    }
    of_node_.assign(num_nodes, none);
    bucket_.assign(batch_sizes.size(), -1);
    cached_count_.assign(batch_sizes.size(), 0);
    incoming_count_.assign(batch_sizes.size(), 0);
    // Some batches may have nothing to look back at, but all take their turn.
    if (due_ == 0) phase_ = Phase::fill;
}

std::uint64_t ChangesetPlanner::bytes(std::uint64_t num_nodes, std::uint64_t capacity, std::uint64_t accesses,
                                      std::uint64_t batches) {
    return 4 * num_nodes + 8 * std::min(capacity, num_nodes) + (fits_narrow(batches) ? 2 : 4) * accesses + 24 * batches;
}

std::uint64_t ChangesetPlanner::memory_bytes() const {
    return 2 * next_narrow_.capacity() + 4 * next_wide_.capacity() + 4 * of_node_.capacity() + 4 * node_in_.capacity() +
           4 * link_.capacity() + 12 * bucket_.capacity() + 8 * starts_.capacity() + 4 * incoming_.capacity();
}

std::uint32_t ChangesetPlanner::next_use(std::uint64_t access) const {
    if (!narrow_) return next_wide_[access];
    const std::uint32_t found = next_narrow_[access];
    return found == none_narrow ? none : found;
}

void ChangesetPlanner::set_next_use(std::uint64_t access, std::uint32_t batch) {
    if (narrow_) {
        next_narrow_[access] = static_cast<std::uint16_t>(batch);  // `none` becomes `none_narrow`
    } else {
        next_wide_[access] = batch;
    }
}

void ChangesetPlanner::check(Phase phase, std::uint32_t batch, std::span<const std::int64_t> nodes) const {
    if (phase != phase_ || batch != due_ || batch + 1 >= starts_.size()) throw std::invalid_argument("a batch out of turn");
    if (nodes.size() != starts_[batch + 1] - starts_[batch]) throw std::invalid_argument("a batch of another size than announced");
}

void ChangesetPlanner::look_back(std::uint32_t batch, std::span<const std::int64_t> nodes) {
    if (due_ == 0) throw std::invalid_argument("a batch out of turn");
    --due_;
    check(Phase::back, batch, nodes);
    std::atomic<int> wrong{0};
    const std::uint64_t first = starts_[batch];
    TaskPool::shared().run(nodes.size(), chunk, threads_, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            if (i + ahead < end) {
                const auto soon = static_cast<std::uint64_t>(nodes[i + ahead]);
                if (soon < num_nodes_) __builtin_prefetch(&of_node_[soon], 1);
            }
            const auto node = static_cast<std::uint64_t>(nodes[i]);
            if (node >= num_nodes_) {
                wrong = 1;
                return;
            }
            std::uint32_t& upcoming = of_node_[node];
            if (upcoming == batch) {
                wrong = 2;
                return;
            }
            set_next_use(first + i, upcoming);
            upcoming = batch;
        }
    });
    if (wrong == 1) throw std::out_of_range("a node that is not in the graph");
    if (wrong == 2) throw std::invalid_argument("a node is twice in a batch");
    if (due_ == 0) phase_ = Phase::fill;
}

bool ChangesetPlanner::fill(std::uint32_t batch, std::span<const std::int64_t> nodes) {
    check(Phase::fill, batch, nodes);
    for (std::size_t i = 0; i < nodes.size() && filled_ < capacity_; ++i) {
        const auto node = static_cast<std::uint64_t>(nodes[i]);
        if (node >= num_nodes_) throw std::out_of_range("a node that is not in the graph");
        if (of_node_[node] != batch) continue;  // an earlier batch brought it
        of_node_[node] |= in_cache;
        ++filled_;
    }
    ++due_;
    return filled_ == capacity_ || due_ + 1 == starts_.size();
}

void ChangesetPlanner::begin() {
    if (phase_ != Phase::fill) throw std::invalid_argument("begin out of turn");
    node_in_.assign(capacity_, none);
    link_.assign(capacity_, -1);
    std::int32_t slot = 0;
    for (std::uint64_t node = 0; node < num_nodes_; ++node) {
        const std::uint32_t first = of_node_[node];
        of_node_[node] = none;
        if (first == none || (first & in_cache) == 0) continue;
        of_node_[node] = static_cast<std::uint32_t>(slot);
        node_in_[static_cast<std::size_t>(slot)] = static_cast<std::uint32_t>(node);
        link(slot, first & ~in_cache);
        ++slot;
    }
    held_ = filled_;
    for (std::uint64_t empty = capacity_; empty-- > filled_;) {
        link_[empty] = free_;
        free_ = static_cast<std::int32_t>(empty);
    }
    phase_ = Phase::forward;
    due_ = 0;
}

std::vector<std::int64_t> ChangesetPlanner::held(std::uint64_t begin, std::uint64_t end) const {
    if (phase_ != Phase::forward || due_ != 0) throw std::invalid_argument("held out of turn");
    end = std::min(end, filled_);
    if (begin >= end) return {};
    const auto at = node_in_.begin();
    return {at + static_cast<std::ptrdiff_t>(begin), at + static_cast<std::ptrdiff_t>(end)};
}

void ChangesetPlanner::link(std::int32_t slot, std::uint32_t next) {
    link_[static_cast<std::size_t>(slot)] = bucket_[next];
    bucket_[next] = slot;
    ++cached_count_[next];
    furthest_ = std::max(furthest_, next);
}

Changeset ChangesetPlanner::advance(std::uint32_t batch, std::span<const std::int64_t> nodes) {
    check(Phase::forward, batch, nodes);
    Changeset result;
    result.slots.resize(nodes.size());
    std::atomic<bool> wrong{false};
    TaskPool::shared().run(nodes.size(), chunk, threads_, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            if (i + ahead < end) {
                const auto soon = static_cast<std::uint64_t>(nodes[i + ahead]);
                if (soon < num_nodes_) __builtin_prefetch(&of_node_[soon]);
            }
            const auto node = static_cast<std::uint64_t>(nodes[i]);
            if (node >= num_nodes_) {
                wrong = true;
                return;
            }
            result.slots[i] = static_cast<std::int32_t>(of_node_[node]);  // `none` is -1
        }
    });
    if (wrong) throw std::out_of_range("a node that is not in the graph");
    // All that this batch was the next to use is in it, and moves to the bucket of its next use.
    held_ -= cached_count_[batch];
    bucket_[batch] = -1;
    cached_count_[batch] = 0;
    incoming_.clear();
    const std::uint64_t first = starts_[batch];
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (i + ahead < nodes.size()) {
            const std::int32_t soon = result.slots[i + ahead];
            if (soon >= 0) __builtin_prefetch(&link_[static_cast<std::size_t>(soon)], 1);
        }
        const std::int32_t slot = result.slots[i];
        const std::uint32_t next = next_use(first + i);
        if (slot < 0) {
            if (next != none) {
                incoming_.push_back(static_cast<std::uint32_t>(i));
                ++incoming_count_[next];
            }
            continue;
        }
        ++result.hits;
        if (next != none) {
            link(slot, next);
            ++held_;
        } else {
            of_node_[static_cast<std::size_t>(nodes[i])] = none;
            link_[static_cast<std::size_t>(slot)] = free_;
            free_ = slot;
        }
    }
    choose(nodes, batch, result);
    ++due_;
    return result;
}

void ChangesetPlanner::choose(std::span<const std::int64_t> nodes, std::uint32_t batch, Changeset& result) {
    if (incoming_.empty()) return;
    const std::uint64_t first = starts_[batch];
    const auto evict_from = [&](std::uint32_t next, std::uint64_t count) {
        for (std::uint64_t k = 0; k < count; ++k) {
            const std::int32_t slot = bucket_[next];
            const auto at = static_cast<std::size_t>(slot);
            bucket_[next] = link_[at];
            of_node_[node_in_[at]] = none;
            link_[at] = free_;
            free_ = slot;
        }
        cached_count_[next] -= static_cast<std::uint32_t>(count);
        held_ -= count;
        result.evictions += count;
    };
    std::uint32_t limit = none;  // rows used next before this batch enter, and `quota` of those used next by it
    std::uint64_t quota = 0;
    const std::uint64_t wanted = held_ + incoming_.size();
    if (wanted > capacity_) {
        std::uint64_t over = wanted - capacity_;
        std::uint32_t next = furthest_;
        for (const std::uint32_t position : incoming_) next = std::max(next, next_use(first + position));
        for (;; --next) {
            const std::uint64_t arriving = incoming_count_[next];
            const std::uint64_t present = cached_count_[next];
            limit = next;
            if (over < arriving + present) {
                const std::uint64_t bypassed = std::min(over, arriving);
                evict_from(next, over - bypassed);
                quota = arriving - bypassed;
                break;
            }
            evict_from(next, present);
            over -= arriving + present;
            if (over == 0) break;  // and none of those used next by `limit` stays
        }
        furthest_ = limit;
    }
    for (const std::uint32_t position : incoming_) {
        const std::uint32_t next = next_use(first + position);
        incoming_count_[next] = 0;
        if (next > limit || (next == limit && limit != none && quota == 0)) continue;
        if (next == limit) --quota;
        const std::int32_t slot = free_;
        const auto at = static_cast<std::size_t>(slot);
        free_ = link_[at];
        const auto node = static_cast<std::size_t>(nodes[position]);
        node_in_[at] = static_cast<std::uint32_t>(node);
        of_node_[node] = static_cast<std::uint32_t>(slot);
        link(slot, next);
        ++held_;
        result.in_positions.push_back(static_cast<std::int32_t>(position));
        result.in_slots.push_back(slot);
    }
}

}  // namespace outcore
