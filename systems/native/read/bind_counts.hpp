// Results of reads in Python: counts as a dict, a failure as (errno, offset).
#pragma once

#include "base/arrays.hpp"
#include "read/read_plan.hpp"
#include "read/window.hpp"

namespace outcore {

inline nb::dict dict_of(const ReadCounts& counts) {
    nb::dict result, sizes;
    for (const auto& [size, count] : counts.requests_by_size) sizes[nb::int_(size)] = count;
    result["requests"] = counts.requests;
    result["bytes_read"] = counts.bytes_read;
    result["bytes_useful"] = counts.bytes_useful;
    result["rows"] = counts.rows;
    result["unique_rows"] = counts.unique_rows;
    result["requests_by_size"] = sizes;
    return result;
}

}  // namespace outcore

template <>
struct nanobind::detail::type_caster<outcore::ReadCounts> : dict_of_fields<outcore::ReadCounts> {};
template <>
struct nanobind::detail::type_caster<outcore::IoFailure> : tuple_of_fields<outcore::IoFailure, 2> {};
