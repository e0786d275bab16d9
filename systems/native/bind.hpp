// Array types that the bindings share.
#pragma once

#include "arrays.hpp"

namespace outcore {

using Ids = In<std::int64_t>;
using Bytes = Written<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ReadOnlyBytes = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FlatBytes = Out<std::uint8_t>;
using Chunks = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // one row per chunk

inline std::span<std::byte> bytes_of(const FlatBytes& memory) {
    return {reinterpret_cast<std::byte*>(memory.data()), memory.size()};
}

}  // namespace outcore
