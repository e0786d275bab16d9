// Bookkeeping of a shared staging buffer: a robust mutex around flat arrays. A mutex orphaned by a kill closes it.
#include "cache/segment_pool.hpp"

#include <cstring>
#include <mutex>
#include <new>

namespace outcore {

SegmentPool::SegmentPool(u32 parties, u32 portion, u32 segment_rows, std::span<std::byte> memory, bool create)
    : parties_(parties), portion_(portion), segment_rows_(segment_rows) {
    if (parties == 0 || portion == 0 || segment_rows == 0)
        throw std::invalid_argument("a staging buffer needs a segment");
    if (parties > max_parties) throw std::invalid_argument("at most 256 processes share a staging buffer");
    SharedArrays arrays(memory, bytes(parties, portion, segment_rows));
    if (create) new (memory.data()) Head;
    head_ = std::launder(arrays.take<Head>(1).data());
    segments_ = arrays.take<Segment>(segments());
    const u32 rows = segments() * segment_rows;
    const auto table = arrays.take<u32>(SlotTable::entries(rows));
    nodes_ = {table, arrays.take<i64>(rows)};
    if (create) {
        nodes_.clear();
        std::ranges::fill(segments_, Segment{});
        head_->segments = segments();
    } else if (head_->segments != segments()) {
        throw std::invalid_argument("the shared staging buffer has another number of segments");
    }
}

u64 SegmentPool::bytes(u32 parties, u32 portion, u32 segment_rows) {
    const size_t segments = size_t{parties} * portion;
    const size_t rows = segments * segment_rows;
    if (segments >= SlotTable::nil / 2 || rows >= SlotTable::nil / 2)
        throw std::invalid_argument("a shared staging buffer has at most 2^31 rows");
    return SharedArrays::bytes<Head>(1) + SharedArrays::bytes<Segment>(segments) +
           SharedArrays::bytes<u32>(SlotTable::entries(static_cast<u32>(rows))) + SharedArrays::bytes<i64>(rows);
}

bool SegmentPool::may_take(u32 party, bool borrow, bool waited) const {
    const Party& own = head_->parties[party];
    if (!waited && own.waiting > 0) return false;
    if (own.held < portion_) return true;
    if (!borrow) return false;
    for (u32 other = 0; other < parties_; ++other)
        if (other != party && head_->parties[other].waiting > 0) return false;
    return true;
}

u32 SegmentPool::oldest_free() const {
    u32 found = no_party;
    for (u32 i = 0; i < segments(); ++i) {
        const Segment& segment = segments_[i];
        if (segment.holder != no_party || segment.pins > 0) continue;
        if (found == no_party || segment.freed_at < segments_[found].freed_at) found = i;
    }
    return found;
}

SegmentPool::State SegmentPool::acquire(u32 party, bool borrow, bool block, u32& segment) {
    if (party >= parties_) throw std::out_of_range("there is no such party");
    std::unique_lock lock(head_->mutex);
    Party& own = head_->parties[party];
    const auto find = [&](bool waited) {
        segment = may_take(party, borrow, waited) ? oldest_free() : no_party;
        return closed() || segment != no_party;
    };
    if (!find(false) && block) {
        const auto far = SharedCondition::Clock::now() + std::chrono::hours(24 * 365);
        ++own.waiting;
        head_->changed.wait_until(lock, far, [&] { return find(true); });  // throws only if the mutex is beyond repair
        --own.waiting;
    }
    if (closed()) return State::closed;
    if (segment == no_party) return State::none;
    segments_[segment].holder = party;
    if (++own.held > portion_) ++own.counts.borrowed;
    for (u32 row = segment * segment_rows_; row < (segment + 1) * segment_rows_; ++row)
        if (nodes_.node_of(row) != SlotTable::no_node) nodes_.unmap(nodes_.node_of(row));
    return State::ok;
}

void SegmentPool::release(u32 party, u32 segment) {
    const Notify notify(head_->changed);
    const std::lock_guard lock(head_->mutex);
    if (segment >= segments() || segments_[segment].holder != party)
        throw std::logic_error("released a segment that the party does not hold");
    segments_[segment].holder = no_party;
    segments_[segment].freed_at = ++head_->time;
    --head_->parties[party].held;
}

void SegmentPool::publish(u32 segment, Ids nodes) {
    if (segment >= segments() || nodes.size() > segment_rows_) throw std::out_of_range("rows beyond the segment");
    const std::lock_guard lock(head_->mutex);
    const u32 first = segment * segment_rows_;
    for (u32 i = 0; i < nodes.size(); ++i) {
        if (nodes_.node_of(first + i) != SlotTable::no_node) throw std::logic_error("published a segment twice");
        if (nodes_.find(nodes[i]) == SlotTable::nil) nodes_.map(nodes[i], first + i);
    }
}

std::vector<i64> SegmentPool::present(Ids nodes) {
    std::vector<i64> found;
    found.reserve(nodes.size());
    const std::lock_guard lock(head_->mutex);
    for (size_t i = 0; i < nodes.size(); ++i)
        if (nodes_.find(nodes[i]) != SlotTable::nil) found.push_back(static_cast<i64>(i));
    return found;
}

std::vector<i64> SegmentPool::fetch(u32 party, u32 segment, Ids nodes, std::span<std::byte> staging, u64 row_bytes) {
    if (party >= parties_ || segment >= segments()) throw std::out_of_range("there is no such party or segment");
    if (staging.size() < u64{segments()} * segment_rows_ * row_bytes)
        throw std::invalid_argument("the staging buffer is smaller than its segments");
    std::vector<i64> positions;
    std::vector<u32> rows;
    std::vector<bool> pinned(segments());
    // Reserve before pinning: after an exception no pin would be released.
    positions.reserve(std::min<size_t>(nodes.size(), segment_rows_));
    rows.reserve(positions.capacity());
    {
        const std::lock_guard lock(head_->mutex);
        for (size_t i = 0; i < nodes.size() && rows.size() < segment_rows_; ++i) {
            const u32 row = nodes_.find(nodes[i]);
            if (row == SlotTable::nil) continue;
            const u32 at = row / segment_rows_;
            if (!pinned[at]) ++segments_[at].pins;
            pinned[at] = true;
            rows.push_back(row);
            positions.push_back(static_cast<i64>(i));
        }
    }
    std::byte* to = staging.data() + u64{segment} * segment_rows_ * row_bytes;
    for (const u32 row : rows) {
        std::memcpy(to, staging.data() + row * row_bytes, row_bytes);
        to += row_bytes;
    }
    const Notify notify(head_->changed);
    const std::lock_guard lock(head_->mutex);
    for (u32 at = 0; at < segments(); ++at) segments_[at].pins -= pinned[at] ? 1 : 0;
    head_->parties[party].counts.found += rows.size();
    return positions;
}

void SegmentPool::close() {
    const Notify notify(head_->changed);
    const std::lock_guard lock(head_->mutex);
    head_->closed = true;
}

SegmentCounts SegmentPool::counts(u32 party) {
    if (party >= parties_) throw std::out_of_range("there is no such party");
    const std::lock_guard lock(head_->mutex);
    return head_->parties[party].counts;
}

}  // namespace outcore
