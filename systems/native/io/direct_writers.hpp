// Write buffers of one size for direct writes, several in flight; a buffer is free again after its write.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "io/backend.hpp"
#include "io/direct_file.hpp"

namespace outcore {

struct DirectWritersOptions {
    u32 buffer_bytes;  // whole pages
    u32 writers;       // writes in flight
    IoChoice choice;
};

// Pool of write buffers over one file, for one thread.
class DirectWriters {
public:
    // The file must exist. Throws std::invalid_argument, std::system_error, std::runtime_error (no io_uring).
    DirectWriters(const std::string& path, const DirectWritersOptions& options, u64 buffers)
        : file_(path, O_WRONLY | O_DIRECT),
          memory_(buffers * checked(options).buffer_bytes),
          writes_(options.writers),
          backend_(open_backend(options.choice, file_.fd(), options.writers, options.writers).backend) {
        for (u64 i = 0; i < buffers; ++i) free_.push_back(memory_.data() + i * options.buffer_bytes);
        for (u32 i = 0; i < options.writers; ++i) places_.push_back(i);
    }
    ~DirectWriters() { finish(); }

    std::byte* take() {
        while (free_.empty()) reap(1);
        std::byte* buffer = free_.back();
        free_.pop_back();
        return buffer;
    }

    // Writes whole pages at a page-aligned offset and then frees the buffer; waits only where `writers` are in flight.
    void write(std::byte* buffer, u64 bytes, u64 offset) {
        if (failure_) {  // after a failure nothing of the file is used
            free_.push_back(buffer);
            return;
        }
        while (places_.empty()) reap(1);
        const u32 tag = places_.back();
        places_.pop_back();
        writes_[tag] = {buffer, bytes, offset, 0};
        queue(tag);
        reap(0);
    }

    // Waits for all writes and returns the first failure.
    std::optional<IoFailure> finish() {
        while (places_.size() < writes_.size()) reap(1);
        return failure_;
    }

    const std::optional<IoFailure>& failure() const { return failure_; }

private:
    struct Write {
        std::byte* buffer;
        u64 bytes, offset, done;
    };

    static DirectWritersOptions checked(const DirectWritersOptions& options) {
        if (options.buffer_bytes == 0 || options.buffer_bytes % page_bytes != 0 || options.writers == 0)
            throw std::invalid_argument("buffers are whole pages; there are writers");
        return options;
    }

    void queue(u32 tag) {
        const Write& write = writes_[tag];
        backend_->queue({write.offset + write.done, write.buffer + write.done,
                         static_cast<u32>(write.bytes - write.done), tag, false, true});
    }

    void reap(u32 at_least) {
        std::array<Completion, 64> completions;
        size_t count = 0;
        try {
            count = backend_->wait(completions, at_least);
        } catch (const std::system_error& error) {  // the ring itself failed
            backend_->abandon();
            for (u32 tag = 0; tag < writes_.size(); ++tag)
                if (std::find(places_.begin(), places_.end(), tag) == places_.end()) release(tag, error.code().value());
        }
        for (size_t i = 0; i < count; ++i) handle(completions[i]);
    }

    void handle(const Completion& completion) {
        Write& write = writes_[completion.tag];
        if (completion.result == -EAGAIN || completion.result == -EINTR) return queue(completion.tag);
        if (completion.result < 0) return release(completion.tag, -completion.result);
        const auto got = static_cast<u64>(completion.result), left = write.bytes - write.done;
        if (got >= left) return release(completion.tag, 0);
        // A direct write starts at a page, so a short one resumes at the start of the page it left incomplete.
        if (got < page_bytes) return release(completion.tag, ENOSPC);
        write.done += got / page_bytes * page_bytes;
        queue(completion.tag);
    }

    void release(u32 tag, int code) {
        const Write& write = writes_[tag];
        if (code != 0 && !failure_) failure_ = IoFailure{code, write.offset + write.done};
        free_.push_back(write.buffer);
        places_.push_back(tag);
    }

    FileHandle file_;
    AlignedMemory memory_;
    std::vector<std::byte*> free_;
    std::vector<Write> writes_;
    std::vector<u32> places_;  // free entries of `writes_`
    std::optional<IoFailure> failure_;
    std::unique_ptr<IoBackend> backend_;  // last member: destroyed before the memory that it writes from
};

}  // namespace outcore
