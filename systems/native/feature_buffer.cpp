// The feature buffer's bookkeeping, one mutex around flat arrays whose size follows the slots, not the nodes.
#include "feature_buffer.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <stdexcept>
#include <unordered_set>

namespace outcore {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point deadline_of(double timeout_s) {
    const double most = 1e8;  // three years: as good as for ever, and no overflow
    const double seconds = timeout_s < 0 ? most : std::min(timeout_s, most);
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::size_t table_entries(std::uint32_t num_slots) { return std::bit_ceil(2ULL * num_slots); }

}  // namespace

FeatureBuffer::FeatureBuffer(std::uint32_t num_slots)
    : num_slots_(num_slots), table_(table_entries(num_slots), nil), node_of_(num_slots, no_node),
      references_(num_slots, 0), state_(num_slots, Slot::empty), next_(num_slots + 1), prev_(num_slots + 1),
      seen_(num_slots, 0) {
    if (num_slots == 0) throw std::invalid_argument("a feature buffer needs at least one slot");
    next_[num_slots_] = prev_[num_slots_] = num_slots_;
    for (std::uint32_t slot = 0; slot < num_slots_; ++slot) standby_push_back(slot);
}

std::uint64_t FeatureBuffer::bytes(std::uint32_t num_slots) {
    const std::uint64_t per_slot = sizeof(std::int64_t) + 3 * sizeof(std::uint32_t) + sizeof(Slot) + sizeof(std::uint64_t);
    return table_entries(num_slots) * sizeof(std::uint32_t) + num_slots * per_slot;
}

std::size_t FeatureBuffer::home(std::int64_t node) const {
    // Fibonacci hashing: the high bits of the product are well mixed for consecutive ids.
    const std::uint64_t mixed = static_cast<std::uint64_t>(node) * 0x9E3779B97F4A7C15ULL;
    return static_cast<std::size_t>(mixed >> (64 - std::bit_width(table_.size() - 1)));
}

std::uint32_t FeatureBuffer::find(std::int64_t node) const {
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = home(node);; at = (at + 1) & mask) {
        const std::uint32_t slot = table_[at];
        if (slot == nil || node_of_[slot] == node) return slot;
    }
}

void FeatureBuffer::map(std::int64_t node, std::uint32_t slot) {
    const std::size_t mask = table_.size() - 1;
    std::size_t at = home(node);
    while (table_[at] != nil) at = (at + 1) & mask;
    table_[at] = slot;
    node_of_[slot] = node;
}

void FeatureBuffer::unmap(std::int64_t node) {
    const std::size_t mask = table_.size() - 1;
    std::size_t hole = home(node);
    while (node_of_[table_[hole]] != node) hole = (hole + 1) & mask;
    node_of_[table_[hole]] = no_node;
    // Entries behind the hole move up where that brings them nearer to their home: no tombstones.
    for (std::size_t at = (hole + 1) & mask; table_[at] != nil; at = (at + 1) & mask) {
        const std::size_t wanted = home(node_of_[table_[at]]);
        if (((at - wanted) & mask) >= ((at - hole) & mask)) {
            table_[hole] = table_[at];
            hole = at;
        }
    }
    table_[hole] = nil;
}

void FeatureBuffer::standby_push_back(std::uint32_t slot) {
    const std::uint32_t head = num_slots_;
    const std::uint32_t last = prev_[head];
    next_[last] = slot;
    prev_[slot] = last;
    next_[slot] = head;
    prev_[head] = slot;
    ++standby_;
}

void FeatureBuffer::standby_push_front(std::uint32_t slot) {
    const std::uint32_t head = num_slots_;
    const std::uint32_t first = next_[head];
    prev_[first] = slot;
    next_[slot] = first;
    prev_[slot] = head;
    next_[head] = slot;
    ++standby_;
}

void FeatureBuffer::standby_remove(std::uint32_t slot) {
    next_[prev_[slot]] = next_[slot];
    prev_[next_[slot]] = prev_[slot];
    --standby_;
}

// Slots that this mini-batch takes from the standby list: rows that lie there, and rows to load.
std::uint64_t FeatureBuffer::slots_wanted(std::span<const std::int64_t> ids, std::uint64_t& unique) {
    ++stamp_;
    std::uint64_t in_standby = 0;
    std::uint64_t absent = 0;
    unique = 0;
    for (const std::int64_t id : ids) {
        const std::uint32_t slot = find(id);
        if (slot == nil) {
            ++absent;
        } else if (seen_[slot] != stamp_) {
            seen_[slot] = stamp_;
            ++unique;
            if (references_[slot] == 0) ++in_standby;
        }
    }
    // Ids that are absent may repeat; telling which costs a set, so it is done only where it decides.
    if (in_standby + absent > standby_) {
        std::unordered_set<std::int64_t> once;
        for (const std::int64_t id : ids) {
            if (find(id) == nil) once.insert(id);
        }
        absent = once.size();
    }
    unique += absent;
    return in_standby + absent;
}

void FeatureBuffer::take(std::span<const std::int64_t> ids, Acquired& result) {
    result.alias.assign(ids.size(), -1);
    ++stamp_;
    // First the rows that are there: they leave the standby list before anything is evicted from it.
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint32_t slot = find(ids[i]);
        if (slot == nil) continue;
        if (references_[slot]++ == 0) standby_remove(slot);
        if (state_[slot] == Slot::valid) {
            ++counts_.hits;
        } else {
            ++counts_.shared;
            if (seen_[slot] != stamp_) result.waiting.push_back(slot);
        }
        seen_[slot] = stamp_;
        result.alias[i] = slot;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (result.alias[i] >= 0) continue;
        std::uint32_t slot = find(ids[i]);
        if (slot != nil) {  // the second occurrence of a row that this call loads
            ++references_[slot];
            ++counts_.shared;
            result.alias[i] = slot;
            continue;
        }
        slot = next_[num_slots_];
        standby_remove(slot);
        if (node_of_[slot] != no_node) {
            unmap(node_of_[slot]);
            ++counts_.evictions;
        }
        map(ids[i], slot);
        state_[slot] = Slot::loading;
        references_[slot] = 1;
        ++counts_.misses;
        result.alias[i] = slot;
        result.load.push_back(static_cast<std::int64_t>(i));
    }
}

BufferState FeatureBuffer::acquire(std::span<const std::int64_t> ids, double timeout_s, Acquired& result,
                                   std::uint64_t& needed) {
    const auto deadline = deadline_of(timeout_s);
    for (const auto id : ids) {
        if (id < 0) throw std::out_of_range("a node id is negative");
    }
    std::unique_lock lock(mutex_);
    const auto ticket = queue_.insert(queue_.end(), next_ticket_++);
    const auto leave = [&](BufferState state) {
        queue_.erase(ticket);
        slots_free_.notify_all();  // the next in the queue may go
        return state;
    };
    const auto my_turn = [&] { return closed_ || queue_.begin() == ticket; };
    for (;;) {
        if (!slots_free_.wait_until(lock, deadline, my_turn)) return leave(BufferState::timeout);
        if (closed_) return leave(BufferState::closed);
        const std::uint64_t wanted = slots_wanted(ids, needed);
        if (wanted > standby_ && needed > num_slots_) return leave(BufferState::too_small);
        if (wanted <= standby_) break;
        const std::uint64_t before = standby_;
        // Our own place at the head is kept; only a release can change what we wait for.
        if (!slots_free_.wait_until(lock, deadline, [&] { return closed_ || standby_ != before; })) {
            return leave(BufferState::timeout);
        }
    }
    take(ids, result);
    return leave(BufferState::ok);
}

std::uint32_t FeatureBuffer::checked(std::int64_t slot) const {
    if (slot < 0 || slot >= num_slots_) throw std::out_of_range("slot " + std::to_string(slot) + " is not in the buffer");
    return static_cast<std::uint32_t>(slot);
}

void FeatureBuffer::publish(std::span<const std::int64_t> slots) {
    {
        const std::lock_guard lock(mutex_);
        for (const auto slot : slots) {
            if (state_[checked(slot)] != Slot::loading) throw std::logic_error("published a slot that is not in loading");
        }
        for (const auto slot : slots) state_[static_cast<std::size_t>(slot)] = Slot::valid;
    }
    rows_there_.notify_all();
}

void FeatureBuffer::fail(std::span<const std::int64_t> slots, const std::string& error) {
    {
        const std::lock_guard lock(mutex_);
        for (const auto slot : slots) {
            const std::uint32_t at = checked(slot);
            if (state_[at] != Slot::loading) continue;  // published before the failure
            state_[at] = Slot::failed;
            errors_[at] = error;
        }
    }
    rows_there_.notify_all();
}

BufferState FeatureBuffer::wait(std::span<const std::int64_t> slots, double timeout_s, std::string& error) {
    const auto deadline = deadline_of(timeout_s);
    std::unique_lock lock(mutex_);
    // Slots already seen valid stay so while the caller holds them: go on from the first that was not.
    std::size_t at = 0;
    const auto settled = [&] {
        while (at < slots.size() && state_[checked(slots[at])] == Slot::valid) ++at;
        return closed_ || at == slots.size() || state_[static_cast<std::size_t>(slots[at])] == Slot::failed;
    };
    if (!rows_there_.wait_until(lock, deadline, settled)) return BufferState::timeout;
    if (at == slots.size()) return BufferState::ok;
    if (closed_) return BufferState::closed;
    error = errors_[static_cast<std::uint32_t>(slots[at])];
    return BufferState::failed;
}

void FeatureBuffer::release(std::span<const std::int64_t> slots) {
    {
        const std::lock_guard lock(mutex_);
        for (const auto one : slots) {
            const std::uint32_t slot = checked(one);
            if (references_[slot] == 0) throw std::logic_error("released a slot that nobody holds");
            if (--references_[slot] > 0) continue;
            if (state_[slot] == Slot::valid) {
                standby_push_back(slot);
                continue;
            }
            // Its row never came: the slot holds nothing worth keeping and is the first to be reused.
            unmap(node_of_[slot]);
            state_[slot] = Slot::empty;
            errors_.erase(slot);
            standby_push_front(slot);
        }
    }
    slots_free_.notify_all();
}

std::vector<std::int64_t> FeatureBuffer::slots_of(std::span<const std::int64_t> ids) {
    const std::lock_guard lock(mutex_);
    std::vector<std::int64_t> slots;
    slots.reserve(ids.size());
    for (const auto id : ids) {
        const std::uint32_t slot = id < 0 ? nil : find(id);
        if (slot == nil) throw std::logic_error("node " + std::to_string(id) + " is in no slot");
        slots.push_back(slot);
    }
    return slots;
}

void FeatureBuffer::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    slots_free_.notify_all();
    rows_there_.notify_all();
}

BufferCounts FeatureBuffer::counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
}

std::uint64_t FeatureBuffer::standby() {
    const std::lock_guard lock(mutex_);
    return standby_;
}

}  // namespace outcore
