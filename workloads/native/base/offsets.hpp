// Check of offsets that cut an array into lists, once on entry, so that no later code reads outside the array.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

#include "base/types.hpp"

namespace outcore {

// Throws std::invalid_argument unless the offsets ascend from 0 to `size`; `whose` names them in the message.
inline void check_offsets(std::span<const i64> offsets, size_t size, const std::string& whose) {
    if (offsets.empty()) throw std::invalid_argument("there are no offsets of " + whose);
    const auto fail = [&](size_t i, const std::string& wanted) {
        throw std::invalid_argument("offset " + std::to_string(i) + " of " + whose + " is " +
                                    std::to_string(offsets[i]) + ", not " + wanted);
    };
    if (offsets.front() != 0) fail(0, "0");
    for (size_t i = 1; i < offsets.size(); ++i)
        if (offsets[i] < offsets[i - 1]) fail(i, std::to_string(offsets[i - 1]) + " or more");
    if (offsets.back() != static_cast<i64>(size)) fail(offsets.size() - 1, std::to_string(size) + ", where they end");
}

}  // namespace outcore
