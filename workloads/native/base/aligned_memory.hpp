// Page-aligned anonymous memory with RAII: bounce buffers for direct I/O.
#pragma once

#include <sys/mman.h>

#include <new>
#include <utility>

#include "base/types.hpp"

namespace outcore {

// Memory that, from 2 MiB on, starts at a huge-page boundary and requests a huge page for every whole 2 MiB: devices
// split a request at every piece of physical memory, and memory in 4 KiB pages has one piece per page.
class AlignedMemory {
public:
    AlignedMemory() = default;
    explicit AlignedMemory(size_t bytes) : bytes_(bytes) {
        if (bytes == 0) return;
        mapped_ = bytes >= huge_page_bytes ? bytes + huge_page_bytes : bytes;
        void* at = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        base_ = data_ = static_cast<std::byte*>(at);
        if (mapped_ == bytes) return;
        data_ += -reinterpret_cast<std::uintptr_t>(base_) % huge_page_bytes;
        madvise(data_, bytes / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);  // a hint: failure is harmless
    }
    AlignedMemory(AlignedMemory&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)),
          data_(std::exchange(other.data_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)),
          mapped_(std::exchange(other.mapped_, 0)) {}
    AlignedMemory& operator=(AlignedMemory&& other) noexcept {
        std::swap(base_, other.base_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(mapped_, other.mapped_);
        return *this;
    }
    AlignedMemory(const AlignedMemory&) = delete;
    AlignedMemory& operator=(const AlignedMemory&) = delete;
    ~AlignedMemory() {
        if (base_ != nullptr) munmap(base_, mapped_);
    }

    std::byte* data() const { return data_; }
    size_t size() const { return bytes_; }

private:
    static constexpr size_t huge_page_bytes = size_t{2} << 20;

    std::byte* base_ = nullptr;  // start of the mapping
    std::byte* data_ = nullptr;
    size_t bytes_ = 0, mapped_ = 0;
};

}  // namespace outcore
