// Array types that the bindings share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nb = nanobind;

namespace outcore {

using Ids = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ReadOnlyBytes = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FlatBytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdsOut = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>;

inline std::span<const std::int64_t> span_of(const Ids& ids) { return {ids.data(), ids.size()}; }

// One-dimensional arrays of any type, to read and to write.
template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> in(const In<T>& array) {
    return {array.data(), array.size()};
}
template <class T>
std::span<T> out(const Out<T>& array) {
    return {array.data(), array.size()};
}

// Hands a vector to numpy without a copy.
inline IdsOut to_numpy(std::vector<std::int64_t> values) {
    auto* kept = new std::vector<std::int64_t>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<std::int64_t>*>(p); });
    return IdsOut(kept->data(), {kept->size()}, owner);
}

}  // namespace outcore
