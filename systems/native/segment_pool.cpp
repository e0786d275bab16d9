// Bookkeeping of a shared staging buffer: a robust mutex around flat arrays. A mutex orphaned by a kill closes it.
#include "segment_pool.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>

namespace outcore {
namespace {

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

SegmentPool::SegmentPool(std::uint32_t parties, std::uint32_t portion, std::uint32_t segment_rows,
                         std::span<std::byte> memory, bool create)
    : parties_(parties), portion_(portion), segment_rows_(segment_rows) {
    if (parties == 0 || portion == 0 || segment_rows == 0) throw std::invalid_argument("a staging buffer needs a segment");
    if (parties > max_parties) throw std::invalid_argument("at most 256 processes share a staging buffer");
    if (memory.size() < bytes(parties, portion, segment_rows) ||
        reinterpret_cast<std::uintptr_t>(memory.data()) % 64 != 0) {
        throw std::invalid_argument("the shared memory is too small or not aligned to 64 bytes");
    }
    if (create) new (memory.data()) Head;
    lay_out(memory.data());
    if (create) {
        nodes_.clear();
        for (Segment& segment : segments_) segment = Segment{};
        head_->segments = segments();
    } else if (head_->segments != segments()) {
        throw std::invalid_argument("the shared staging buffer has another number of segments");
    }
}

void SegmentPool::lay_out(std::byte* memory) {
    head_ = std::launder(reinterpret_cast<Head*>(memory));
    std::size_t at = round_up(sizeof(Head));
    const auto place = [&]<typename T>(std::span<T>& array, std::size_t count) {
        array = {reinterpret_cast<T*>(memory + at), count};
        at += round_up(count * sizeof(T));
    };
    const std::uint32_t rows = segments() * segment_rows_;
    std::span<std::uint32_t> table;
    std::span<std::int64_t> node_of;
    place(segments_, segments());
    place(table, NodeTable::entries(rows));
    place(node_of, rows);
    nodes_ = {table, node_of};
}

std::uint64_t SegmentPool::bytes(std::uint32_t parties, std::uint32_t portion, std::uint32_t segment_rows) {
    const std::size_t segments = std::size_t{parties} * portion;
    const std::size_t rows = segments * segment_rows;
    if (segments >= NodeTable::nil / 2 || rows >= NodeTable::nil / 2) throw std::invalid_argument("a shared staging buffer has at most 2^31 rows");
    return round_up(sizeof(Head)) + round_up(segments * sizeof(Segment)) +
           round_up(NodeTable::entries(static_cast<std::uint32_t>(rows)) * sizeof(std::uint32_t)) +
           round_up(rows * sizeof(std::int64_t));
}

bool SegmentPool::may_take(std::uint32_t party, bool borrow, bool waited) const {
    const Party& own = head_->parties[party];
    if (!waited && own.waiting > 0) return false;
    if (own.held < portion_) return true;
    if (!borrow) return false;
    for (std::uint32_t other = 0; other < parties_; ++other) {
        if (other != party && head_->parties[other].waiting > 0) return false;
    }
    return true;
}

std::uint32_t SegmentPool::oldest_free() const {
    std::uint32_t found = nobody;
    for (std::uint32_t i = 0; i < segments(); ++i) {
        const Segment& segment = segments_[i];
        if (segment.holder != nobody || segment.pins > 0) continue;
        if (found == nobody || segment.freed_at < segments_[found].freed_at) found = i;
    }
    return found;
}

SegmentPool::State SegmentPool::acquire(std::uint32_t party, bool borrow, bool block, std::uint32_t& segment) {
    if (party >= parties_) throw std::out_of_range("there is no such party");
    std::unique_lock lock(head_->mutex);
    Party& own = head_->parties[party];
    const auto find = [&](bool waited) {
        segment = may_take(party, borrow, waited) ? oldest_free() : nobody;
        return closed() || segment != nobody;
    };
    if (!find(false) && block) {
        const auto far = SharedCondition::Clock::now() + std::chrono::hours(24 * 365);
        ++own.waiting;
        head_->changed.wait_until(lock, far, [&] { return find(true); });  // throws only if the mutex is beyond repair
        --own.waiting;
    }
    if (closed()) return State::closed;
    if (segment == nobody) return State::none;
    segments_[segment].holder = party;
    if (++own.held > portion_) ++own.counts.borrowed;
    for (std::uint32_t row = segment * segment_rows_; row < (segment + 1) * segment_rows_; ++row) {
        if (nodes_.node_of(row) != NodeTable::no_node) nodes_.unmap(nodes_.node_of(row));
    }
    return State::ok;
}

void SegmentPool::release(std::uint32_t party, std::uint32_t segment) {
    {
        const std::lock_guard lock(head_->mutex);
        if (segment >= segments() || segments_[segment].holder != party) {
            throw std::logic_error("released a segment that the party does not hold");
        }
        segments_[segment].holder = nobody;
        segments_[segment].freed_at = ++head_->time;
        --head_->parties[party].held;
    }
    head_->changed.notify_all();
}

void SegmentPool::publish(std::uint32_t segment, std::span<const std::int64_t> nodes) {
    if (segment >= segments() || nodes.size() > segment_rows_) throw std::out_of_range("rows beyond the segment");
    const std::lock_guard lock(head_->mutex);
    const std::uint32_t first = segment * segment_rows_;
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
        if (nodes_.node_of(first + i) != NodeTable::no_node) throw std::logic_error("published a segment twice");
        if (nodes_.find(nodes[i]) == NodeTable::nil) nodes_.map(nodes[i], first + i);
    }
}

std::vector<std::int64_t> SegmentPool::present(std::span<const std::int64_t> nodes) {
    std::vector<std::int64_t> found;
    found.reserve(nodes.size());
    const std::lock_guard lock(head_->mutex);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (nodes_.find(nodes[i]) != NodeTable::nil) found.push_back(static_cast<std::int64_t>(i));
    }
    return found;
}

std::vector<std::int64_t> SegmentPool::fetch(std::uint32_t party, std::uint32_t segment,
                                             std::span<const std::int64_t> nodes, std::span<std::byte> staging,
                                             std::uint64_t row_bytes) {
    if (party >= parties_ || segment >= segments()) throw std::out_of_range("there is no such party or segment");
    if (staging.size() < std::uint64_t{segments()} * segment_rows_ * row_bytes) {
        throw std::invalid_argument("the staging buffer is smaller than its segments");
    }
    std::vector<std::int64_t> positions;
    std::vector<std::uint32_t> rows;
    std::vector<bool> pinned(segments());
    // Reserve before pinning: after an exception no pin would be released.
    positions.reserve(std::min<std::size_t>(nodes.size(), segment_rows_));
    rows.reserve(positions.capacity());
    {
        const std::lock_guard lock(head_->mutex);
        for (std::size_t i = 0; i < nodes.size() && rows.size() < segment_rows_; ++i) {
            const std::uint32_t row = nodes_.find(nodes[i]);
            if (row == NodeTable::nil) continue;
            const std::uint32_t at = row / segment_rows_;
            if (!pinned[at]) ++segments_[at].pins;
            pinned[at] = true;
            rows.push_back(row);
            positions.push_back(static_cast<std::int64_t>(i));
        }
    }
    std::byte* to = staging.data() + std::uint64_t{segment} * segment_rows_ * row_bytes;
    for (const std::uint32_t row : rows) {
        std::memcpy(to, staging.data() + row * row_bytes, row_bytes);
        to += row_bytes;
    }
    {
        const std::lock_guard lock(head_->mutex);
        for (std::uint32_t at = 0; at < segments(); ++at) segments_[at].pins -= pinned[at] ? 1 : 0;
        head_->parties[party].counts.found += rows.size();
    }
    head_->changed.notify_all();
    return positions;
}

void SegmentPool::close() {
    {
        const std::lock_guard lock(head_->mutex);
        head_->closed = true;
    }
    head_->changed.notify_all();
}

SegmentCounts SegmentPool::counts(std::uint32_t party) {
    if (party >= parties_) throw std::out_of_range("there is no such party");
    const std::lock_guard lock(head_->mutex);
    return head_->parties[party].counts;
}

}  // namespace outcore
