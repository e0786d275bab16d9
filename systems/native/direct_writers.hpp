// Write buffers of one size for direct writes, several in flight; a buffer is free again after its write.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "aligned_memory.hpp"
#include "pread_pool.hpp"
#include "ring.hpp"

namespace outcore {

struct DirectWritersOptions {
    std::uint32_t buffer_bytes;  // whole pages
    std::uint32_t writers;       // writes in flight
    bool want_ring = true;
    bool need_ring = false;
};

struct WriteFailure {
    int code;  // errno
    std::uint64_t offset;
};

// Pool of write buffers over one file, for one thread.
class DirectWriters {
public:
    static constexpr std::uint64_t page_bytes = 4096;

    // The file must exist. Throws std::system_error, also where io_uring is needed and refused.
    DirectWriters(const std::string& path, const DirectWritersOptions& options, std::uint64_t buffers)
        : memory_(buffers * options.buffer_bytes), writes_(options.writers) {
        fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT);
        if (fd_ < 0 && errno == EINVAL) fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);  // no O_DIRECT, as on tmpfs
        if (fd_ < 0) throw std::system_error(errno, std::generic_category(), path);
        for (std::uint64_t i = 0; i < buffers; ++i) free_.push_back(memory_.data() + i * options.buffer_bytes);
        for (std::uint32_t i = 0; i < options.writers; ++i) places_.push_back(i);
        try {
            backend_ = make_backend(options, fd_);
        } catch (...) {
            close(fd_);
            throw;
        }
    }
    DirectWriters(const DirectWriters&) = delete;
    DirectWriters& operator=(const DirectWriters&) = delete;
    ~DirectWriters() {
        finish();
        backend_.reset();
        close(fd_);
    }

    std::byte* take() {
        while (free_.empty()) reap(1);
        std::byte* buffer = free_.back();
        free_.pop_back();
        return buffer;
    }

    // Writes whole pages at a page-aligned offset and then frees the buffer; waits only where `writers` are in flight.
    void write(std::byte* buffer, std::uint64_t bytes, std::uint64_t offset) {
        if (failure_) {  // after a failure nothing of the file is used
            free_.push_back(buffer);
            return;
        }
        while (places_.empty()) reap(1);
        const std::uint32_t tag = places_.back();
        places_.pop_back();
        writes_[tag] = {buffer, bytes, offset, 0};
        queue(tag);
        reap(0);
    }

    // Waits for all writes and returns the first failure.
    std::optional<WriteFailure> finish() {
        while (places_.size() < writes_.size()) reap(1);
        return failure_;
    }

    const std::optional<WriteFailure>& failure() const { return failure_; }

private:
    struct Write {
        std::byte* buffer;
        std::uint64_t bytes, offset, done;
    };

    static std::unique_ptr<IoBackend> make_backend([[maybe_unused]] const DirectWritersOptions& options, int fd) {
#ifdef OUTCORE_HAS_LIBURING
        if (options.want_ring) {
            try {
                return std::make_unique<Ring>(options.writers, fd);
            } catch (const std::system_error&) {
                if (options.need_ring) throw;
            }
        }
#endif
        return std::make_unique<PreadPool>(options.writers, options.writers, fd);
    }

    void queue(std::uint32_t tag) {
        const Write& write = writes_[tag];
        backend_->queue({write.offset + write.done, write.buffer + write.done, static_cast<std::uint32_t>(write.bytes - write.done), tag, false, true});
    }

    void reap(std::uint32_t at_least) {
        std::array<Completion, 64> completions;
        std::size_t count = 0;
        try {
            count = backend_->wait(completions, at_least);
        } catch (const std::system_error& error) {  // the ring itself failed
            backend_->abandon();
            for (std::uint32_t tag = 0; tag < writes_.size(); ++tag) {
                if (std::find(places_.begin(), places_.end(), tag) == places_.end()) release(tag, error.code().value());
            }
        }
        for (std::size_t i = 0; i < count; ++i) handle(completions[i]);
    }

    void handle(const Completion& completion) {
        Write& write = writes_[completion.tag];
        if (completion.result == -EAGAIN || completion.result == -EINTR) return queue(completion.tag);
        if (completion.result < 0) return release(completion.tag, -completion.result);
        const auto got = static_cast<std::uint64_t>(completion.result), left = write.bytes - write.done;
        if (got >= left) return release(completion.tag, 0);
        // A direct write starts at a page, so a short one resumes at the start of the page it left incomplete.
        if (got < page_bytes) return release(completion.tag, ENOSPC);
        write.done += got / page_bytes * page_bytes;
        queue(completion.tag);
    }

    void release(std::uint32_t tag, int code) {
        const Write& write = writes_[tag];
        if (code != 0 && !failure_) failure_ = WriteFailure{code, write.offset + write.done};
        free_.push_back(write.buffer);
        places_.push_back(tag);
    }

    int fd_ = -1;
    AlignedMemory memory_;
    std::vector<std::byte*> free_;
    std::vector<Write> writes_;
    std::vector<std::uint32_t> places_;  // free entries of `writes_`
    std::optional<WriteFailure> failure_;
    std::unique_ptr<IoBackend> backend_;  // last member: destroyed before the memory that it writes from
};

}  // namespace outcore
