// Uninitialised arrays: growing working memory that is kept from batch to batch, and results for numpy.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "base/types.hpp"

namespace outcore {

// `size` uninitialised elements.
template <class T>
struct Buffer {
    std::unique_ptr<T[]> data;
    size_t size = 0;

    Buffer() = default;
    explicit Buffer(size_t count)
        : data(std::make_unique_for_overwrite<T[]>(std::max<size_t>(count, 1))), size(count) {}
    T& operator[](size_t i) noexcept { return data[i]; }
    const T& operator[](size_t i) const noexcept { return data[i]; }
};

// A buffer that only ever grows; `reserve` keeps the first `kept` elements.
template <class T>
class Scratch {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    void reserve(size_t count, size_t kept = 0) {
        if (count <= capacity_) return;
        const size_t grown = std::max(count, capacity_ + capacity_ / 2);
        auto larger = std::make_unique_for_overwrite<T[]>(grown);
        if (kept > 0) std::memcpy(larger.get(), data_.get(), kept * sizeof(T));
        data_ = std::move(larger);
        capacity_ = grown;
    }
    T* data() noexcept { return data_.get(); }
    T& operator[](size_t i) noexcept { return data_[i]; }
    size_t bytes() const noexcept { return capacity_ * sizeof(T); }

private:
    std::unique_ptr<T[]> data_;
    size_t capacity_ = 0;
};

}  // namespace outcore
