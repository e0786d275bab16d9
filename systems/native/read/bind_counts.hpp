// Results of reads in Python: counts as a dict, a failure as (errno, offset).
#pragma once

#include "base/arrays.hpp"
#include "read/read_plan.hpp"

namespace outcore {

inline nb::dict dict_of(const RequestCounts& counts) {
    nb::dict result = as_dict(
        {{"requests", counts.requests}, {"bytes_read", counts.bytes_read}, {"bytes_useful", counts.bytes_useful}});
    nb::dict sizes;
    for (const auto& [size, count] : counts.by_size) sizes[nb::int_(size)] = count;
    result["requests_by_size"] = sizes;
    return result;
}

inline nb::dict dict_of(const ReadCounts& counts) {
    nb::dict result = dict_of(static_cast<const RequestCounts&>(counts));
    result["rows"] = counts.rows;
    result["unique_rows"] = counts.unique_rows;
    return result;
}

}  // namespace outcore

OUTCORE_TUPLE(IoFailure, 2)
