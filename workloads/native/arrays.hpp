// Array types of the bindings of both layers.
//
// An array that a call only reads may be a copy that nanobind made to fit the type (`In`). An array that it writes
// is the caller's own memory, or a TypeError: never a copy whose contents are lost (`Written`, `Out`). An array that
// native code uses after the call has returned is held by the object that uses it (`Holding`).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace outcore {

namespace nb = nanobind;

// An array that native code writes to.
template <class... Args>
struct Written : nb::ndarray<Args...> {
    using nb::ndarray<Args...>::ndarray;
    Written() = default;
    Written(nb::ndarray<Args...> array) : nb::ndarray<Args...>(std::move(array)) {}
};

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = Written<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> span_of(const In<T>& array) {
    return {array.data(), array.size()};
}
template <class T>
std::span<T> span_of(const Out<T>& array) {
    return {array.data(), array.size()};
}

// A native object and the arrays whose memory it keeps using. They are held as nanobind passed them, so that converted
// copies stay alive too, which nb::keep_alive would not keep; they are destroyed after the object.
template <class Native, class... Arrays>
class Holding {
public:
    template <class Make>
    Holding(Make&& make, Arrays... arrays) : held_(std::move(arrays)...), native_(std::forward<Make>(make)()) {}
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

    Native* operator->() { return &native_; }
    const Native* operator->() const { return &native_; }
    Native& operator*() { return native_; }

    // Replaces the held arrays; the object must no longer point into the old ones.
    void hold(Arrays... arrays) { held_ = {std::move(arrays)...}; }

private:
    std::tuple<Arrays...> held_;
    Native native_;
};

// Hands a vector to numpy without a copy.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T> values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return {kept->data(), {kept->size()}, owner};
}

}  // namespace outcore

namespace nanobind::detail {

template <class... Args>
struct type_caster<outcore::Written<Args...>> {
    using Base = make_caster<ndarray<Args...>>;
    NB_TYPE_CASTER(outcore::Written<Args...>, Base::Name)

    bool from_python(handle src, std::uint32_t flags, cleanup_list* cleanup) noexcept {
        Base base;
        if (!base.from_python(src, flags & ~static_cast<std::uint32_t>(cast_flags::convert), cleanup)) return false;
        value = std::move(base.value);
        return true;
    }
};

}  // namespace nanobind::detail
