// Bookkeeping under one mutex in flat arrays: sized by slots, not nodes; without pointers, so processes may share them.
#include "cache/feature_buffer.hpp"

#include <mutex>
#include <unordered_set>

#include "base/refuse.hpp"

namespace outcore {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point deadline_of(double timeout_s) {
    const double most = 1e8;  // three years: in effect no limit, and no overflow
    const double seconds = timeout_s < 0 ? most : std::min(timeout_s, most);
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

// Place in the queue for slots. Every exit from the scope gives it up and wakes the next caller in the queue.
class FeatureBuffer::Turn {
public:
    Turn(Head& head, std::unique_lock<SharedMutex>& lock) : head_(head), lock_(lock), ticket_(head.next_ticket) {
        if (head.queued == head.queue.size()) throw std::length_error("256 extractors wait for slots already");
        head.queue[head.queued++] = head.next_ticket++;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
        try {
            if (!lock_.owns_lock()) lock_.lock();
            const auto begin = head_.queue.begin();
            head_.queued = static_cast<u32>(std::remove(begin, begin + head_.queued, ticket_) - begin);
        } catch (const std::system_error&) {  // the mutex is unrecoverable, so no caller waits for a turn
        }
        head_.slots_free.notify_all();
    }

    bool come() const { return head_.queue[0] == ticket_; }

private:
    Head& head_;
    std::unique_lock<SharedMutex>& lock_;
    u64 ticket_;
};

FeatureBuffer::FeatureBuffer(u32 num_slots) : num_slots_(num_slots), own_(bytes(num_slots)) {
    lay_out({own_.data(), own_.size()}, true);
}

FeatureBuffer::FeatureBuffer(u32 num_slots, std::span<std::byte> memory, bool create) : num_slots_(num_slots) {
    lay_out(memory, create);
}

void FeatureBuffer::lay_out(std::span<std::byte> memory, bool create) {
    if (num_slots_ == 0) throw std::invalid_argument("a feature buffer needs at least one slot");
    SharedArrays arrays(memory, bytes(num_slots_));
    if (create) new (memory.data()) Head;
    head_ = std::launder(arrays.take<Head>(1).data());
    const auto table = arrays.take<u32>(SlotTable::entries(num_slots_));
    nodes_ = {table, arrays.take<i64>(num_slots_)};
    references_ = arrays.take<u32>(num_slots_);
    state_ = arrays.take<Slot>(num_slots_);
    next_ = arrays.take<u32>(num_slots_ + 1UL);
    prev_ = arrays.take<u32>(num_slots_ + 1UL);
    seen_ = arrays.take<u64>(num_slots_);
    if (!create) {
        if (head_->num_slots != num_slots_)
            throw std::invalid_argument("the shared feature buffer has another number of slots");
        return;
    }
    nodes_.clear();
    std::ranges::fill(references_, 0U);
    std::ranges::fill(state_, Slot::empty);
    std::ranges::fill(seen_, 0UL);
    next_[num_slots_] = prev_[num_slots_] = num_slots_;
    for (u32 slot = 0; slot < num_slots_; ++slot) standby_insert(slot, num_slots_);
    head_->num_slots = num_slots_;
}

u64 FeatureBuffer::bytes(u32 num_slots) {
    const size_t slots = num_slots;
    return SharedArrays::bytes<Head>(1) + SharedArrays::bytes<u32>(SlotTable::entries(num_slots)) +
           2 * SharedArrays::bytes<i64>(slots) + SharedArrays::bytes<u32>(slots) + SharedArrays::bytes<Slot>(slots) +
           2 * SharedArrays::bytes<u32>(slots + 1);
}

// Inserts a slot before another of the standby list, or with `num_slots_` at its end.
void FeatureBuffer::standby_insert(u32 slot, u32 before) {
    const u32 last = prev_[before];
    next_[last] = slot;
    prev_[slot] = last;
    next_[slot] = before;
    prev_[before] = slot;
    ++head_->standby;
}

void FeatureBuffer::standby_remove(u32 slot) {
    next_[prev_[slot]] = next_[slot];
    prev_[next_[slot]] = prev_[slot];
    --head_->standby;
}

// Counts the standby slots that a mini-batch takes: of rows in them and for rows to load. Throws std::bad_alloc before
// any change that other callers see.
u64 FeatureBuffer::slots_wanted(Ids ids, u64& unique) {
    ++head_->stamp;
    u64 in_standby = 0;
    u64 absent = 0;
    unique = 0;
    for (const i64 id : ids) {
        const u32 slot = nodes_.find(id);
        if (slot == nil) {
            ++absent;
        } else if (seen_[slot] != head_->stamp) {
            seen_[slot] = head_->stamp;
            ++unique;
            if (references_[slot] == 0) ++in_standby;
        }
    }
    // Absent ids may repeat; an exact count costs a set, so it is made only where it decides.
    if (in_standby + absent > head_->standby) {
        std::unordered_set<i64> once;
        for (const i64 id : ids)
            if (nodes_.find(id) == nil) once.insert(id);
        absent = once.size();
    }
    unique += absent;
    return in_standby + absent;
}

// The caller has reserved `result`: an exception halfway would leak the slots taken so far.
void FeatureBuffer::take(Ids ids, Acquired& result) noexcept {
    result.alias.assign(ids.size(), -1);
    ++head_->stamp;
    // Buffered rows first: they must leave the standby list before another row evicts them.
    for (size_t i = 0; i < ids.size(); ++i) {
        const u32 slot = nodes_.find(ids[i]);
        if (slot == nil) continue;
        if (references_[slot]++ == 0) standby_remove(slot);
        if (state_[slot] == Slot::valid) {
            ++head_->counts.hits;
        } else {
            ++head_->counts.shared;
            if (seen_[slot] != head_->stamp) result.waiting.push_back(slot);
        }
        seen_[slot] = head_->stamp;
        result.alias[i] = slot;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
        if (result.alias[i] >= 0) continue;
        u32 slot = nodes_.find(ids[i]);
        if (slot != nil) {  // a repeated id, whose row this call loads
            ++references_[slot];
            ++head_->counts.shared;
            result.alias[i] = slot;
            continue;
        }
        slot = next_[num_slots_];
        standby_remove(slot);
        if (nodes_.node_of(slot) != SlotTable::no_node) {
            nodes_.unmap(nodes_.node_of(slot));
            ++head_->counts.evictions;
        }
        nodes_.map(ids[i], slot);
        state_[slot] = Slot::loading;
        references_[slot] = 1;
        ++head_->counts.misses;
        result.alias[i] = slot;
        result.load.push_back(static_cast<i64>(i));
    }
}

BufferState FeatureBuffer::acquire(Ids ids, double timeout_s, Acquired& result, u64& needed) {
    const auto deadline = deadline_of(timeout_s);
    for (const auto id : ids)
        if (id < 0) throw std::out_of_range("a node id is negative");
    result = {};
    result.alias.reserve(ids.size());
    result.load.reserve(ids.size());
    result.waiting.reserve(ids.size());
    std::unique_lock lock(head_->mutex);
    const Turn turn(*head_, lock);
    if (!head_->slots_free.wait_until(lock, deadline, [&] { return closed() || turn.come(); }))
        return BufferState::timeout;
    for (;;) {
        if (closed()) return BufferState::closed;
        const u64 wanted = slots_wanted(ids, needed);
        if (wanted <= head_->standby) break;
        if (needed > num_slots_) return BufferState::too_small;
        const u64 before = head_->standby;
        // This call keeps its place at the head of the queue; only a release can change the outcome.
        if (!head_->slots_free.wait_until(lock, deadline, [&] { return closed() || head_->standby != before; }))
            return BufferState::timeout;
    }
    take(ids, result);
    return BufferState::ok;
}

u32 FeatureBuffer::checked(i64 slot) const {
    if (slot < 0 || slot >= num_slots_) refuse<std::out_of_range>("slot ", slot, " is not in the buffer");
    return static_cast<u32>(slot);
}

void FeatureBuffer::publish(Ids slots) {
    const Notify notify(head_->rows_there);
    const std::lock_guard lock(head_->mutex);
    for (const auto slot : slots)
        if (state_[checked(slot)] != Slot::loading) throw std::logic_error("published a slot that is not being loaded");
    for (const auto slot : slots) state_[static_cast<size_t>(slot)] = Slot::valid;
}

void FeatureBuffer::fail(Ids slots, const std::string& error) {
    const Notify notify(head_->rows_there);
    const std::lock_guard lock(head_->mutex);
    for (const auto slot : slots) {
        const u32 at = checked(slot);
        if (state_[at] != Slot::loading) continue;  // published before the failure
        state_[at] = Slot::failed;
        auto& failure = head_->failures[head_->next_failure++ % head_->failures.size()];
        failure.slot = at;
        failure.text.fill(0);
        error.copy(failure.text.data(), failure.text.size() - 1);
    }
}

BufferState FeatureBuffer::wait(Ids slots, double timeout_s, std::string& error) {
    const auto deadline = deadline_of(timeout_s);
    std::unique_lock lock(head_->mutex);
    // Valid slots stay valid while the caller holds them: resume at the first that was not.
    size_t at = 0;
    const auto decided = [&] {
        while (at < slots.size() && state_[checked(slots[at])] == Slot::valid) ++at;
        return closed() || at == slots.size() || state_[static_cast<size_t>(slots[at])] == Slot::failed;
    };
    if (!head_->rows_there.wait_until(lock, deadline, decided)) return BufferState::timeout;
    if (at == slots.size()) return BufferState::ok;
    if (closed()) return BufferState::closed;
    const auto found = std::ranges::find(head_->failures, slots[at], &Head::Failure::slot);
    error = found == head_->failures.end() ? "its loader failed" : found->text.data();
    return BufferState::failed;
}

void FeatureBuffer::release(Ids slots) {
    const Notify notify(head_->slots_free);
    const std::lock_guard lock(head_->mutex);
    for (const auto one : slots) {
        const u32 slot = checked(one);
        if (references_[slot] == 0) throw std::logic_error("released a slot without references");
        if (--references_[slot] > 0) continue;
        if (state_[slot] == Slot::valid) {
            standby_insert(slot, num_slots_);
            continue;
        }
        // The row was never loaded: the slot is the first to be reused.
        nodes_.unmap(nodes_.node_of(slot));
        state_[slot] = Slot::empty;
        for (auto& failure : head_->failures)
            if (failure.slot == slot) failure.slot = nil;
        standby_insert(slot, next_[num_slots_]);
    }
}

std::vector<i64> FeatureBuffer::slots_of(Ids ids) {
    const std::lock_guard lock(head_->mutex);
    std::vector<i64> slots;
    slots.reserve(ids.size());
    for (const auto id : ids) {
        const u32 slot = id < 0 ? nil : nodes_.find(id);
        if (slot == nil) refuse<std::logic_error>("node ", id, " is in no slot");
        slots.push_back(slot);
    }
    return slots;
}

void FeatureBuffer::close() {
    const Notify free(head_->slots_free), there(head_->rows_there);
    const std::lock_guard lock(head_->mutex);
    head_->closed = true;
}

BufferCounts FeatureBuffer::counts() {
    const std::lock_guard lock(head_->mutex);
    return head_->counts;
}

u64 FeatureBuffer::standby() {
    const std::lock_guard lock(head_->mutex);
    return head_->standby;
}

}  // namespace outcore
