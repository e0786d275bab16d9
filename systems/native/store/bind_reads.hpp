// Counts of a piece file's reads as a dict.
#pragma once

#include "base/arrays.hpp"
#include "io/piece_file.hpp"

namespace outcore {

inline nb::dict dict_of(const PieceReads& reads) {
    nb::dict result, sizes;
    for (const auto& [size, count] : reads.by_size) sizes[nb::int_(size)] = count;
    result["requests"] = reads.requests;
    result["bytes_read"] = reads.bytes_read;
    result["bytes_useful"] = reads.bytes_useful;
    result["requests_by_size"] = sizes;
    return result;
}

}  // namespace outcore

template <>
struct nanobind::detail::type_caster<outcore::PieceReads> : dict_of_fields<outcore::PieceReads> {};
