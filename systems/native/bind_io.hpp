// Conversions shared by the bindings that read files: counts to a dict, failures to a pair, errors to OSError.
#pragma once

#include <nanobind/nanobind.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>

#include "read_plan.hpp"
#include "window.hpp"

namespace outcore {

inline nanobind::dict dict_of(const ReadCounts& counts) {
    nanobind::dict result;
    result["requests"] = counts.requests;
    result["bytes_read"] = counts.bytes_read;
    result["bytes_useful"] = counts.bytes_useful;
    result["rows"] = counts.rows;
    result["unique_rows"] = counts.unique_rows;
    nanobind::dict sizes;
    for (const auto& [size, count] : counts.requests_by_size) sizes[nanobind::int_(size)] = count;
    result["requests_by_size"] = sizes;
    return result;
}

using FailurePair = std::optional<std::tuple<int, std::uint64_t>>;

inline FailurePair pair_of(const std::optional<ReadFailure>& failure) {
    if (!failure) return std::nullopt;
    return std::tuple{failure->code, failure->offset};
}

// Raises OSError with errno and path, as Python's own open does.
[[noreturn]] inline void raise_os_error(const std::system_error& error, const std::string& path) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
    throw nanobind::python_error();
}

}  // namespace outcore
