// The range queue's thread: cuts ranges into requests, queues them as places become free, finishes short reads.
#include "io/range_queue.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <system_error>

namespace outcore {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

RangeQueue::RangeQueue(const std::string& path, const RangeQueueOptions& options) : options_(options), file_(path) {
    if (options.depth == 0 || options.depth > 4096) throw std::invalid_argument("depth must be in [1, 4096]");
    const u32 block = file_.block_bytes();
    if (options.request_bytes < block || options.request_bytes > (1U << 30))
        throw std::invalid_argument("request_bytes must be at least a block and at most 1 GiB");
    options_.request_bytes = options.request_bytes / block * block;
    auto opened = open_backend(options.choice, file_.fd(), options.depth, options.depth);
    backend_ = std::move(opened.backend);
    mode_ = std::move(opened.mode);
    if (!file_.note().empty()) mode_ += "; " + file_.note();
    flights_.resize(options.depth);
    completions_.resize(options.depth);
    for (u32 i = 0; i < options.depth; ++i) free_.push_back(options.depth - 1 - i);
    thread_ = std::thread([this] { run(); });
}

RangeQueue::Ticket RangeQueue::submit(u64 offset, u64 need, std::span<std::byte> memory) {
    const u64 block = file_.block_bytes();
    if (offset % block != 0 || reinterpret_cast<std::uintptr_t>(memory.data()) % file_.memory_alignment() != 0)
        throw std::invalid_argument("the range or its memory is not aligned");
    if (need > memory.size() || up_to(need, block) > memory.size())
        throw std::invalid_argument("the memory is too small");
    const std::lock_guard lock(mutex_);
    ranges_.push_back({.offset = offset, .need = need, .memory = memory.data(), .failure = {}});
    if (ended_ != 0) ranges_.back().failure = IoFailure{ended_, offset};
    asked_.notify_one();
    return first_ + ranges_.size() - 1;
}

RangeQueue::Arrival RangeQueue::wait(Ticket ticket) {
    std::unique_lock lock(mutex_);
    if (ticket < first_ || ticket - first_ >= ranges_.size() || range(ticket).taken)
        throw std::logic_error("this range was waited for before");
    arrived_.wait(lock, [&] { return range(ticket).arrived(); });
    range(ticket).taken = true;
    const Arrival arrival{range(ticket).failure, range(ticket).arrived_s};
    while (!ranges_.empty() && ranges_.front().taken) {
        ranges_.pop_front();
        ++first_;
    }
    cursor_ = std::max(cursor_, first_);
    return arrival;
}

void RangeQueue::close() {
    const std::lock_guard one_at_a_time(closing_);
    {
        const std::lock_guard lock(mutex_);
        if (ended_ == 0) ended_ = ECANCELED;
        fail_all(ended_);
    }
    asked_.notify_all();
    arrived_.notify_all();
    if (thread_.joinable()) thread_.join();
    backend_.reset();
}

void RangeQueue::fail_all(int code) {
    for (auto& range : ranges_)
        if (range.begun < range.need && !range.failure) range.failure = IoFailure{code, range.offset + range.begun};
}

void RangeQueue::run() noexcept {
    std::unique_lock lock(mutex_);
    int code = 0;
    try {
        serve(lock);
        return;
    } catch (const std::system_error& error) {
        code = error.code().value();
    } catch (...) {
        code = ENOMEM;
    }
    // Report the failure only once the kernel is done with the memory: callers may reuse it as soon as `wait` returns.
    if (lock.owns_lock()) lock.unlock();
    backend_->abandon();
    lock.lock();
    ended_ = code;
    fail_all(code);
    for (auto& range : ranges_) {
        if (range.in_flight > 0 && !range.failure) range.failure = IoFailure{code, range.offset};
        range.in_flight = 0;
    }
    arrived_.notify_all();
}

void RangeQueue::serve(std::unique_lock<std::mutex>& lock) {
    for (;;) {
        fill();
        const auto in_flight = static_cast<u32>(options_.depth - free_.size());
        if (in_flight == 0) {
            if (ended_ != 0) return;
            asked_.wait(lock);
            continue;
        }
        // With more to queue, take several completions at once: the block layer joins neighbours that are queued
        // together. Otherwise take one at a time, so that ranges submitted meanwhile begin soon.
        const u32 at_least = free_.empty() ? std::max(1U, options_.depth / 4) : 1;
        lock.unlock();
        const size_t count = backend_->wait(completions_, at_least);
        lock.lock();
        for (size_t i = 0; i < count; ++i) handle(completions_[i]);
    }
}

void RangeQueue::fill() {
    while (!free_.empty() && cursor_ - first_ < ranges_.size()) {
        Range& range = this->range(cursor_);
        if (range.failure || range.begun >= range.need) {
            if (range.arrived()) {  // an empty range, or one that failed before it began
                range.arrived_s = std::max(range.arrived_s, range.begun == 0 ? now_s() : 0.0);
                arrived_.notify_all();
            }
            ++cursor_;
            continue;
        }
        const u64 block = file_.block_bytes();
        const auto wanted = static_cast<u32>(std::min<u64>(options_.request_bytes, range.need - range.begun));
        const auto length = static_cast<u32>(up_to(wanted, block));
        const u32 tag = free_.back();
        free_.pop_back();
        flights_[tag] = {cursor_, range.begun, length, {static_cast<u32>(block), wanted}};
        range.begun += wanted;
        ++range.in_flight;
        submit_flight(tag);
    }
}

void RangeQueue::submit_flight(u32 tag) {
    const Flight& flight = flights_[tag];
    const Range& range = this->range(flight.ticket);
    const u64 at = flight.offset + flight.progress.base;
    backend_->queue({range.offset + at, range.memory + at, flight.length - flight.progress.base, tag, false});
}

void RangeQueue::handle(const Completion& completion) {
    Flight& flight = flights_[completion.tag];
    Range& range = this->range(flight.ticket);
    const auto next = flight.progress.advance(completion.result);
    if (next == Progress::Next::again) return submit_flight(completion.tag);
    if (next == Progress::Next::ended) {
        const IoFailure failure = flight.progress.failure(completion.result, range.offset + flight.offset);
        if (!range.failure || failure.offset < range.failure->offset) range.failure = failure;
    }
    free_.push_back(completion.tag);
    if (--range.in_flight == 0 && range.arrived()) {
        range.arrived_s = now_s();
        arrived_.notify_all();
    }
}

}  // namespace outcore
