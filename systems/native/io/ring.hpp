// io_uring with RAII: the ring, its registered file and its registered bounce buffer.
#pragma once

#ifdef OUTCORE_HAS_LIBURING

#include <liburing.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "base/types.hpp"
#include "io/backend.hpp"

namespace outcore {

class Ring final : public IoBackend {
public:
    // Throws std::system_error where io_uring is missing or forbidden (ENOSYS, EPERM).
    Ring(u32 depth, int fd) : fd_(fd) {
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
        io_uring_for_each_cqe(&ring_, head, entry) {
            if (count == out.size()) break;
            out[count++] = {static_cast<u32>(entry->user_data), entry->res};
        }
        io_uring_cq_advance(&ring_, static_cast<unsigned>(count));
        open_ -= count;
        return count;
    }

    void submit(u32 at_least) {
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

    io_uring ring_{};
    int fd_;
    u64 open_ = 0;  // requests queued and not yet taken as completions
    bool registered_file_ = false;
    bool registered_buffer_ = false;
};

}  // namespace outcore

#endif
