// Queue of file ranges, read in order in large direct requests by a thread of its own; the device's queue stays full.
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

    // Queues a read of bytes [offset, offset + need) to `memory`, which holds `need` rounded up to a block and belongs
    // to the queue until `wait` or `close`. Throws std::invalid_argument for an unaligned offset or address.
    Ticket submit(std::uint64_t offset, std::uint64_t need, std::span<std::byte> memory);
    // Result of a range: its failure, if any, and its end in seconds on the monotonic clock.
    struct Arrival {
        std::optional<ReadFailure> failure;
        double seconds = 0.0;
    };

    // Waits until the range has arrived or failed and nothing writes to its memory any more. ECANCELED: the queue was
    // closed before. Throws std::logic_error for a ticket that was waited for already.
    Arrival wait(Ticket ticket);
    // Drops requests that have not begun and waits for requests in flight; afterwards nothing writes to any memory.
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
        bool taken = false;  // `wait` has returned it
        std::optional<ReadFailure> failure;
        double arrived_s = 0.0;

        bool arrived() const { return in_flight == 0 && (failure || begun >= need); }
    };
    struct Flight {
        Ticket ticket;
        std::uint64_t offset;  // offset within the range
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
    Ticket first_ = 0;   // ticket of ranges_.front()
    Ticket cursor_ = 0;  // ticket of the range whose requests are being queued
    int ended_ = 0;  // errno of all later ranges: ECANCELED, or that of the failed ring
    std::mutex closing_;
    std::thread thread_;
};

}  // namespace outcore
