// The two backends: io_uring, and a pool of threads for hosts where io_uring is missing or forbidden.
#include "io/backend.hpp"

#ifdef OUTCORE_HAS_LIBURING
#include <liburing.h>
#endif
#include <sys/resource.h>
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <stdexcept>
#include <system_error>

#include "base/team.hpp"
#include "io/latency.hpp"
#include "io/request_log.hpp"

namespace outcore {
namespace {

// Reads and writes by threads that call pread and pwrite.
class PreadPool final : public IoBackend {
public:
    // Starts fewer threads where the host gives no more. Throws std::system_error where it gives none.
    PreadPool(u32 threads, u32 depth, int fd) : fd_(fd), waiting_(depth), submitted_ns_(depth), log_(fd, depth) {
        staged_.reserve(depth);
        done_.reserve(depth);
        if (start_threads(threads_, threads, [this](size_t) { work(); }) == 0)
            throw std::system_error(EAGAIN, std::generic_category(), "a thread to read with");
    }
    ~PreadPool() override { abandon(); }

    void queue(const Io& io) override {
        log_.add(io);
        staged_.push_back(io);
    }

    size_t wait(std::span<Completion> out, u32 at_least) override {
        std::unique_lock lock(mutex_);
        const size_t added = staged_.size();
        const u64 now_ns = added > 0 && LatencyLog::enabled() ? LatencyLog::now_ns() : 0;
        for (const Io& io : staged_) submitted_ns_[io.tag] = now_ns;
        for (const Io& io : staged_) waiting_[(first_waiting_ + num_waiting_++) % waiting_.size()] = io;
        staged_.clear();
        if (added > 1) {
            work_there_.notify_all();
        } else if (added == 1) {
            work_there_.notify_one();
        }
        wanted_ = at_least;
        enough_done_.wait(lock, [&] { return done_.size() >= at_least; });
        wanted_ = 0;
        const size_t count = std::min(out.size(), done_.size());
        std::copy_n(done_.begin(), count, out.begin());
        done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
    }

    void abandon() noexcept override {
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        work_there_.notify_all();
        for (auto& thread : threads_) thread.join();
        threads_.clear();
    }

private:
    void work() noexcept {
        std::unique_lock lock(mutex_);
        for (;;) {
            work_there_.wait(lock, [&] { return closing_ || num_waiting_ > 0; });
            if (closing_) return;
            const Io io = waiting_[first_waiting_];
            first_waiting_ = (first_waiting_ + 1) % waiting_.size();
            --num_waiting_;
            lock.unlock();
            const auto at = static_cast<off_t>(io.offset);
            const ssize_t got =
                io.write ? pwrite(fd_, io.destination, io.length, at) : pread(fd_, io.destination, io.length, at);
            const auto result = static_cast<i32>(got < 0 ? -errno : got);
            const u64 now_ns = LatencyLog::enabled() ? LatencyLog::now_ns() : 0;
            lock.lock();
            const u64 begun_ns = submitted_ns_[io.tag];
            if (begun_ns > 0 && now_ns > 0) latency_.add(io.write, io.length, now_ns - begun_ns);
            done_.push_back({io.tag, result});
            if (wanted_ > 0 && done_.size() >= wanted_) enough_done_.notify_one();
        }
    }

    int fd_;
    // None of these grows beyond `depth`, which is reserved from the start: threads allocate nothing.
    std::vector<Io> staged_;   // queued, not yet given to the threads
    std::vector<Io> waiting_;  // a ring of `depth` places; `first_waiting_` begins next
    std::vector<Completion> done_;
    std::vector<u64> submitted_ns_;  // by tag; 0: not measured
    LatencyLog latency_;             // the lock's holder adds
    RequestLog log_;
    size_t first_waiting_ = 0, num_waiting_ = 0;
    std::mutex mutex_;
    std::condition_variable work_there_, enough_done_;
    size_t wanted_ = 0;  // number of completions that `wait` sleeps for
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

#ifdef OUTCORE_HAS_LIBURING

// The ring, its registered file and its registered bounce buffer.
class Ring final : public IoBackend {
public:
    // Throws std::system_error where io_uring is missing or forbidden (ENOSYS, EPERM).
    Ring(u32 depth, int fd) : fd_(fd), flights_(depth), log_(fd, depth) {
        staged_.reserve(depth);
        // COOP_TASKRUN: completions are processed when the reader enters the kernel anyway, without an interrupt to it.
        int code = -EINVAL;
        for (const unsigned flags : {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CQSIZE, IORING_SETUP_CQSIZE + 0U}) {
            io_uring_params params{};
            params.flags = flags;
            params.cq_entries = 2 * depth;
            code = io_uring_queue_init_params(depth, &ring_, &params);
            if (code != -EINVAL) break;
        }
        if (code < 0) throw std::system_error(-code, std::generic_category(), "io_uring_setup");
        registered_file_ = io_uring_register_files(&ring_, &fd_, 1) == 0;
    }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    ~Ring() override { io_uring_queue_exit(&ring_); }

    // Registers the buffer; returns 0, or the errno of the kernel's refusal (ENOMEM: the memlock limit).
    int register_bounce(std::byte* data, size_t bytes) {
        const iovec memory{data, bytes};
        const int code = io_uring_register_buffers(&ring_, &memory, 1);
        registered_buffer_ = code == 0;
        return -code;
    }

    void queue(const Io& io) override {
        io_uring_sqe* entry = io_uring_get_sqe(&ring_);
        if (entry == nullptr) {
            submit(0);
            entry = io_uring_get_sqe(&ring_);
            if (entry == nullptr) throw std::system_error(EBUSY, std::generic_category(), "io_uring_get_sqe");
        }
        const int file = registered_file_ ? 0 : fd_;
        if (io.write) {
            io_uring_prep_write(entry, file, io.destination, io.length, io.offset);
        } else if (io.in_bounce && registered_buffer_) {
            io_uring_prep_read_fixed(entry, file, io.destination, io.length, io.offset, 0);
        } else {
            io_uring_prep_read(entry, file, io.destination, io.length, io.offset);
        }
        if (registered_file_) entry->flags |= IOSQE_FIXED_FILE;
        entry->user_data = io.tag;
        log_.add(io);
        flights_[io.tag] = {0, io.length, io.write};
        staged_.push_back(io.tag);
        ++open_;
    }

    size_t wait(std::span<Completion> out, u32 at_least) override {
        if (io_uring_cq_ready(&ring_) < at_least || io_uring_sq_ready(&ring_) > 0) submit(at_least);
        return take(out);
    }

    // Polls the completions in memory that the ring shares with the kernel: no call that the kernel could refuse.
    // Closing the ring is not enough, since the kernel ends its reads some time later.
    void abandon() noexcept override {
        std::array<Completion, 64> completions;
        while (open_ > io_uring_sq_ready(&ring_)) {
            if (take(completions) == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }

private:
    size_t take(std::span<Completion> out) noexcept {
        unsigned head = 0;
        size_t count = 0;
        io_uring_cqe* entry = nullptr;
        const bool measured = LatencyLog::enabled() && io_uring_cq_ready(&ring_) > 0;
        const u64 now_ns = measured ? LatencyLog::now_ns() : 0;
        io_uring_for_each_cqe(&ring_, head, entry) {
            if (count == out.size()) break;
            const auto tag = static_cast<u32>(entry->user_data);
            out[count++] = {tag, entry->res};
            const Flight& flight = flights_[tag];
            if (now_ns > 0 && flight.submitted_ns > 0)
                latency_.add(flight.write, flight.bytes, now_ns - flight.submitted_ns);
        }
        io_uring_cq_advance(&ring_, static_cast<unsigned>(count));
        open_ -= count;
        return count;
    }

    void submit(u32 at_least) {
        // One reading of the clock for all requests that enter the kernel together.
        const u64 now_ns = !staged_.empty() && LatencyLog::enabled() ? LatencyLog::now_ns() : 0;
        for (const u32 tag : staged_) flights_[tag].submitted_ns = now_ns;
        staged_.clear();
        for (;;) {
            const int code = io_uring_submit_and_wait(&ring_, at_least);
            if (code >= 0) {
                if (io_uring_sq_ready(&ring_) == 0 && io_uring_cq_ready(&ring_) >= at_least) return;
            } else if (code != -EINTR && code != -EAGAIN && code != -EBUSY) {
                throw std::system_error(-code, std::generic_category(), "io_uring_enter");
            }
            // Completions must be taken before the kernel accepts more.
            if (code < 0 && io_uring_cq_ready(&ring_) > 0) return;
        }
    }

    struct Flight {
        u64 submitted_ns;  // 0: not measured
        u32 bytes;
        bool write;
    };

    io_uring ring_{};
    int fd_;
    std::vector<Flight> flights_;  // by tag
    std::vector<u32> staged_;      // tags queued since the last submission
    LatencyLog latency_;
    RequestLog log_;
    u64 open_ = 0;  // requests queued and not yet taken as completions
    bool registered_file_ = false, registered_buffer_ = false;
};

OpenedBackend open_ring(int fd, u32 depth, const AlignedMemory* bounce) {
    auto ring = std::make_unique<Ring>(depth, fd);
    if (bounce == nullptr) return {std::move(ring), "io_uring"};
    const int code = ring->register_bounce(bounce->data(), bounce->size());
    if (code == 0) return {std::move(ring), "io_uring registered", true};
    std::string reason = std::generic_category().message(code);
    if (rlimit limit{}; code == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        reason = "memlock limit " +
                 (limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur >> 10) + " KiB");
    return {std::move(ring), "io_uring unregistered (" + reason + ")"};
}
#else
OpenedBackend open_ring(int, u32, const AlignedMemory*) { throw std::runtime_error("built without liburing"); }
#endif

}  // namespace

OpenedBackend open_backend(const IoChoice& choice, int fd, u32 depth, u32 threads, const AlignedMemory* bounce) {
    std::string reason = "asked for";
    if (choice.want_ring) {
        try {
            return open_ring(fd, depth, bounce);
        } catch (const std::runtime_error& error) {  // std::system_error is one
            reason = error.what();
        }
    }
    if (choice.need_ring) throw std::runtime_error(reason);
    return {std::make_unique<PreadPool>(std::min(threads, depth), depth, fd), "pread pool (" + reason + ")"};
}

}  // namespace outcore
