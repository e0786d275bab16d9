// Reads ranges of a file in the order in which they were asked for, in large direct requests, on a thread of its own that
// keeps the device's queue full across ranges: between two of them it never runs empty.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "direct_file.hpp"
#include "io_backend.hpp"
#include "progress.hpp"
#include "window.hpp"

namespace outcore {

struct RangeQueueOptions {
    std::uint32_t depth = 16;
    std::uint32_t request_bytes = 1 << 20;
    bool want_ring = true;
    bool need_ring = false;
};

class RangeQueue {
public:
    using Ticket = std::uint64_t;

    // Throws std::system_error, std::invalid_argument, std::runtime_error (need_ring).
    RangeQueue(const std::string& path, const RangeQueueOptions& options);
    RangeQueue(const RangeQueue&) = delete;
    RangeQueue& operator=(const RangeQueue&) = delete;
    ~RangeQueue() { close(); }

    // Asks for bytes [offset, offset + need) to be read to the start of `memory`, which holds `need` rounded up to a
    // block; offset and address are aligned. `memory` is the reader's until the ticket was waited for, or `close`.
    Ticket submit(std::uint64_t offset, std::uint64_t need, std::span<std::byte> memory);
    // How a range ended, and when: seconds on the monotonic clock.
    struct Arrival {
        std::optional<ReadFailure> failure;
        double seconds = 0.0;
    };

    // Waits until the range has arrived or failed, and nothing writes to its memory any more; each ticket once.
    // ECANCELED: the queue was closed before.
    Arrival wait(Ticket ticket);
    // Drops what has not begun and waits for what is in flight; afterwards nothing writes to any memory.
    void close();

    const std::string& mode() const { return mode_; }
    std::uint32_t block_bytes() const { return file_.block_bytes(); }
    std::uint32_t request_bytes() const { return options_.request_bytes; }

private:
    struct Range {
        std::uint64_t offset;
        std::uint64_t need;
        std::byte* memory;
        std::uint64_t begun = 0;  // bytes for which requests were queued
        std::uint32_t in_flight = 0;
        bool taken = false;  // waited for, to the end
        std::optional<ReadFailure> failure;
        double arrived_s = 0.0;

        bool arrived() const { return in_flight == 0 && (failure || begun >= need); }
    };
    struct Flight {
        Ticket ticket;
        std::uint64_t offset;  // in the range
        std::uint32_t length;
        Progress progress;
    };

    void run() noexcept;
    void serve(std::unique_lock<std::mutex>& lock);
    void fill();
    void submit_flight(std::uint32_t tag);
    void handle(const Completion& completion);
    void fail_all(int code);
    Range& range(Ticket ticket) { return ranges_[ticket - first_]; }

    RangeQueueOptions options_;
    DirectFile file_;
    std::string mode_;
    std::unique_ptr<IoBackend> backend_;
    std::vector<Flight> flights_;
    std::vector<std::uint32_t> free_;
    std::vector<Completion> completions_;

    std::mutex mutex_;
    std::condition_variable asked_;
    std::condition_variable arrived_;
    std::deque<Range> ranges_;
    Ticket first_ = 0;   // of ranges_.front()
    Ticket cursor_ = 0;  // the range whose requests are being queued
    int ended_ = 0;  // errno of every range from now on: ECANCELED, or why the ring failed
    std::mutex closing_;
    std::thread thread_;
};

}  // namespace outcore
