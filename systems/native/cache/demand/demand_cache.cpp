// Demand policies at work: on a recorded trace, where only misses count, and in a cache whose slots hold rows.
#include "cache/demand/demand_cache.hpp"

#include <stdexcept>
#include <string>

#include "base/refuse.hpp"
#include "cache/demand/fifo.hpp"
#include "cache/demand/lfu.hpp"
#include "cache/demand/lru.hpp"
#include "cache/demand/s3_fifo.hpp"
#include "cache/demand/sieve.hpp"

namespace outcore {
namespace {

// Rows and their slots; the policy chooses the slots to free.
template <class Policy>
class Slots {
public:
    Slots(u32 num_rows, u32 capacity) : slot_of_(num_rows, no_slot), row_of_(capacity), policy_(num_rows, capacity) {}

    static constexpr size_t slot_bytes = sizeof(u32) + Policy::slot_bytes;
    static constexpr size_t row_bytes = sizeof(u32) + Policy::row_bytes;

    u32 num_rows() const { return static_cast<u32>(slot_of_.size()); }

    // Returns the slot of a row, or no_slot.
    u32 slot_of(u32 row) const { return slot_of_[row]; }

    // Uses a row. Returns its slot; no_slot: it was missed, and is cached now unless the cache has no slots.
    u32 use(u32 row) {
        const u32 slot = slot_of_[row];
        if (slot != no_slot) policy_.hit(slot, row);
        else if (!row_of_.empty()) insert(row);
        return slot;
    }

private:
    void insert(u32 row) {
        const u32 slot = free_slot();
        slot_of_[row] = slot;
        row_of_[slot] = row;
        policy_.insert(slot, row);
    }

    u32 free_slot() {
        if (untouched_ < row_of_.size()) return untouched_++;
        if (freed_.empty()) {
            policy_.evict(row_of_, freed_);
            for (const u32 slot : freed_) slot_of_[row_of_[slot]] = no_slot;
        }
        const u32 slot = freed_.back();
        freed_.pop_back();
        return slot;
    }

    std::vector<u32> slot_of_;  // by row
    std::vector<u32> row_of_;   // by slot
    std::vector<u32> freed_;
    u32 untouched_ = 0;  // slots from here on never held a row
    Policy policy_;
};

template <class Policy>
class Cache final : public DemandCache {
public:
    Cache(u32 num_rows, u32 capacity) : slots_(num_rows, capacity) {}

    DemandLookup look_up(Ids rows) override {
        for (const i64 row : rows) checked_row(row, slots_.num_rows());
        DemandLookup found;
        for (size_t i = 0; i < rows.size(); ++i) {
            const u32 slot = slots_.use(static_cast<u32>(rows[i]));
            if (slot == no_slot) {
                found.misses.push_back(static_cast<i64>(i));
            } else {
                found.hits.push_back(static_cast<i32>(i));
                found.hit_slots.push_back(static_cast<i32>(slot));
            }
        }
        for (const i64 i : found.misses) {
            const u32 slot = slots_.slot_of(static_cast<u32>(rows[static_cast<size_t>(i)]));
            if (slot == no_slot) continue;  // evicted by a later row of the mini-batch
            found.admitted.push_back(static_cast<i32>(i));
            found.into.push_back(static_cast<i32>(slot));
        }
        return found;
    }

private:
    Slots<Policy> slots_;
};

template <class Policy>
u64 count(const AccessTrace& trace, u64 capacity) {
    Slots<Policy> slots(trace.num_rows, static_cast<u32>(std::min<u64>(capacity, trace.num_rows)));
    u64 misses = 0;
    for (const u32 row : trace.rows) misses += slots.use(row) == no_slot;
    return misses;
}

template <class Policy>
std::unique_ptr<DemandCache> made(u32 num_rows, u32 capacity) {
    return std::make_unique<Cache<Policy>>(num_rows, capacity);
}

struct Known {
    std::string_view name;
    CountMisses count;
    std::unique_ptr<DemandCache> (*make)(u32 num_rows, u32 capacity);
    size_t slot_bytes, row_bytes;
};

template <class Policy>
constexpr Known known(std::string_view name) {
    return {name, count<Policy>, made<Policy>, Slots<Policy>::slot_bytes, Slots<Policy>::row_bytes};
}

constexpr Known policies[] = {known<Lru>("lru"),          known<Fifo<false>>("fifo"), known<Lfu>("lfu"),
                              known<Fifo<true>>("clock"), known<Sieve>("sieve"),      known<S3Fifo>("s3-fifo")};

const Known& find(std::string_view name) {
    for (const Known& policy : policies)
        if (policy.name == name) return policy;
    throw std::invalid_argument("there is no policy " + std::string(name));
}

}  // namespace

CountMisses demand_policy(std::string_view name) { return find(name).count; }

std::unique_ptr<DemandCache> DemandCache::make(std::string_view policy, u32 num_rows, u32 capacity) {
    return find(policy).make(num_rows, capacity);
}

std::pair<size_t, size_t> DemandCache::bytes(std::string_view policy) {
    const Known& found = find(policy);
    return {found.slot_bytes, found.row_bytes};
}

}  // namespace outcore
