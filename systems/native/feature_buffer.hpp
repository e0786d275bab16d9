// GNNDrive's feature buffer management (GNNDrive, Section 4.2 and Algorithm 1): which node lies in which slot, who uses
// it, whether its bytes are there. Holds no features itself.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace outcore {

struct Acquired {
    std::vector<std::int64_t> alias;    // slot of ids[i]
    std::vector<std::int64_t> load;     // positions whose rows the caller must load, then publish
    std::vector<std::int64_t> waiting;  // slots that others are loading
};

enum class BufferState { ok, timeout, closed, too_small, failed };

struct BufferCounts {
    std::uint64_t hits = 0;       // rows found valid
    std::uint64_t shared = 0;     // rows found in loading by another
    std::uint64_t misses = 0;     // rows to load
    std::uint64_t evictions = 0;  // valid rows that gave up their slot
};

class FeatureBuffer {
public:
    explicit FeatureBuffer(std::uint32_t num_slots);

    std::uint32_t num_slots() const { return num_slots_; }
    static std::uint64_t bytes(std::uint32_t num_slots);

    // All slots that a mini-batch needs, or none: an extractor never holds a part while it waits for the rest, so
    // that extractors cannot block each other. First come, first served. Each occurrence of an id counts one reference.
    // `needed` is set to the unique rows of the mini-batch where it is too_small.
    BufferState acquire(std::span<const std::int64_t> ids, double timeout_s, Acquired& result, std::uint64_t& needed);

    // The bytes of these slots are there. Throws std::logic_error for a slot that is not in loading.
    void publish(std::span<const std::int64_t> slots);
    // The loader of these slots gives up; whoever waits for them is told.
    void fail(std::span<const std::int64_t> slots, const std::string& error);
    // Waits until every slot is valid. `error` is set where one failed.
    BufferState wait(std::span<const std::int64_t> slots, double timeout_s, std::string& error);
    // One reference less for each; a slot without references joins the standby list as most recently used.
    void release(std::span<const std::int64_t> slots);

    // Slots of ids that the caller holds. Throws std::logic_error for one that is in no slot.
    std::vector<std::int64_t> slots_of(std::span<const std::int64_t> ids);

    // Wakes every waiter; all later calls say `closed`.
    void close();

    BufferCounts counts();
    std::uint64_t standby();  // slots that nobody uses

private:
    enum class Slot : std::uint8_t { empty, loading, valid, failed };
    static constexpr std::uint32_t nil = UINT32_MAX;
    static constexpr std::int64_t no_node = -1;

    std::uint32_t find(std::int64_t node) const;
    void map(std::int64_t node, std::uint32_t slot);
    void unmap(std::int64_t node);
    std::size_t home(std::int64_t node) const;
    void standby_push_back(std::uint32_t slot);
    void standby_push_front(std::uint32_t slot);
    void standby_remove(std::uint32_t slot);
    std::uint64_t slots_wanted(std::span<const std::int64_t> ids, std::uint64_t& unique);
    void take(std::span<const std::int64_t> ids, Acquired& result);
    std::uint32_t checked(std::int64_t slot) const;

    std::uint32_t num_slots_;
    std::mutex mutex_;
    std::condition_variable slots_free_;
    std::condition_variable rows_there_;
    std::vector<std::uint32_t> table_;       // the mapping table: open addressing, holds slots
    std::vector<std::int64_t> node_of_;      // the reverse mapping array
    std::vector<std::uint32_t> references_;
    std::vector<Slot> state_;
    std::vector<std::uint32_t> next_;        // the standby list, least recently used first; entry num_slots_ is its head
    std::vector<std::uint32_t> prev_;
    std::vector<std::uint64_t> seen_;        // stamp of the last count that saw the slot
    std::uint64_t stamp_ = 0;
    std::uint64_t standby_ = 0;
    std::list<std::uint64_t> queue_;         // tickets of those who wait for slots
    std::uint64_t next_ticket_ = 0;
    std::unordered_map<std::uint32_t, std::string> errors_;  // of failed slots
    BufferCounts counts_;
    bool closed_ = false;
};

}  // namespace outcore
