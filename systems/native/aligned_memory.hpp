// Page-aligned anonymous memory with RAII: bounce buffers for direct I/O.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace outcore {

class AlignedMemory {
public:
    AlignedMemory() = default;
    explicit AlignedMemory(std::size_t bytes) : bytes_(bytes) {
        if (bytes == 0) return;
        void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        data_ = static_cast<std::byte*>(at);
        // Fewer pieces of physical memory for each large read; the kernel takes it as a hint.
        if (bytes >= huge_page_bytes) madvise(data_, bytes, MADV_HUGEPAGE);
    }
    AlignedMemory(AlignedMemory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    AlignedMemory& operator=(AlignedMemory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    AlignedMemory(const AlignedMemory&) = delete;
    AlignedMemory& operator=(const AlignedMemory&) = delete;
    ~AlignedMemory() {
        if (data_ != nullptr) munmap(data_, bytes_);
    }

    std::byte* data() const { return data_; }
    std::size_t size() const { return bytes_; }

private:
    static constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace outcore
