// Refusals of input: exceptions whose messages are put together from text and numbers, out of the way of hot loops.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "base/types.hpp"

namespace outcore {

// Throws an Error whose message is the concatenation of its parts.
template <class Error, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void refuse(Parts... parts) {
    std::string text;
    const auto add = [&text](const auto& part) {
        if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(part)>>) text += std::to_string(part);
        else text += part;
    };
    (add(parts), ...);
    throw Error(text);
}

// Returns a row of a table of `num_rows`; throws std::out_of_range for another.
inline u64 checked_row(i64 row, u64 num_rows) {
    if (static_cast<u64>(row) >= num_rows) refuse<std::out_of_range>("row ", row, " of a table of ", num_rows, " rows");
    return static_cast<u64>(row);
}

// Returns a seed node of a graph of `num_nodes`; throws std::invalid_argument for another.
inline u64 checked_seed(i64 node, u64 num_nodes) {
    if (static_cast<u64>(node) >= num_nodes)
        refuse<std::invalid_argument>("seed node ", node, " is not one of the graph's ", num_nodes, " nodes");
    return static_cast<u64>(node);
}

[[noreturn]] inline void refuse_repeated_seed(i64 node) {
    refuse<std::invalid_argument>("seed node ", node, " stands twice in one batch");
}

[[noreturn]] inline void refuse_list(u64 node, i64 start, i64 end, u64 num_edges) {
    refuse<std::out_of_range>("the neighbour list of node ", node, " is [", start, ", ", end, ") of ", num_edges,
                              " edges");
}

// Refuses the source of edge number `edge`.
template <class Id>
[[noreturn]] void refuse_source(u64 edge, Id source, u64 num_nodes) {
    refuse<std::out_of_range>("edge ", edge, " comes from node ", source, ", which is not one of ", num_nodes);
}

// Returns the source of an edge of a graph of `num_nodes`; throws std::out_of_range for another.
template <class Id>
u64 checked_source(Id source, u64 num_nodes) {
    if (static_cast<u64>(source) >= num_nodes)
        refuse<std::out_of_range>("an edge comes from node ", source, ", which is not one of ", num_nodes);
    return static_cast<u64>(source);
}

// Throws std::invalid_argument unless the offsets, which cut an array of `size` into lists, ascend from 0 to it; `whose`
// names them in the message. Checked once on entry, so that no later code reads outside the array.
inline void check_offsets(std::span<const i64> offsets, size_t size, const char* whose) {
    if (offsets.empty()) refuse<std::invalid_argument>("there are no offsets of ", whose);
    const auto fail = [&](size_t i, i64 wanted, const char* more) {
        refuse<std::invalid_argument>("offset ", i, " of ", whose, " is ", offsets[i], ", not ", wanted, more);
    };
    if (offsets.front() != 0) fail(0, 0, "");
    for (size_t i = 1; i < offsets.size(); ++i)
        if (offsets[i] < offsets[i - 1]) fail(i, offsets[i - 1], " or more");
    if (offsets.back() != static_cast<i64>(size)) fail(offsets.size() - 1, static_cast<i64>(size), ", where they end");
}

}  // namespace outcore
