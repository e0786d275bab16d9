// Page-aligned anonymous memory with RAII: bounce buffers for direct I/O.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <new>

#include "base/types.hpp"

namespace outcore {

// Memory that, from 2 MiB on, starts at a huge-page boundary and requests a huge page for every whole 2 MiB: devices
// split a request at every piece of physical memory, and memory in 4 KiB pages has one piece per page.
class AlignedMemory {
public:
    AlignedMemory() = default;
    explicit AlignedMemory(size_t bytes) : bytes_(bytes) {
        if (bytes == 0) return;
        const size_t mapped = bytes >= kHugePageBytes ? bytes + kHugePageBytes : bytes;
        void* at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        mapping_ = {static_cast<std::byte*>(at), Unmap{mapped}};
        data_ = mapping_.get();
        if (mapped == bytes) return;
        data_ += -reinterpret_cast<std::uintptr_t>(at) % kHugePageBytes;
        madvise(data_, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);  // a hint: failure is harmless
    }

    std::byte* data() const { return data_; }
    size_t size() const { return bytes_; }

private:
    static constexpr size_t kHugePageBytes = size_t{2} << 20;

    struct Unmap {
        size_t bytes;
        void operator()(std::byte* at) const { munmap(at, bytes); }
    };

    std::unique_ptr<std::byte, Unmap> mapping_;
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace outcore
