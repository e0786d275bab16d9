// Kernels that reorder a graph and its feature rows, and their bindings: copies from memory to the new places in a window
// of the new file.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "base/arrays.hpp"
#include "base/team.hpp"

namespace outcore {
namespace {

// Copies row i of `rows` to row places[i] - first of `out`, if there is one; leaves the other rows out.
void scatter_rows(Table rows, Ids places, i64 first, OutTable out, unsigned threads) {
    if (rows.row_bytes != out.row_bytes || rows.row_bytes == 0) throw std::invalid_argument("rows differ in size");
    if (rows.num_rows < places.size()) throw std::out_of_range("fewer rows than places");
    parallel(places.size(), 1024, threads, [&](size_t from, size_t to, int) {
        for (size_t i = from; i < to; ++i) {
            const auto place = static_cast<u64>(places[i] - first);
            if (place < out.num_rows) std::memcpy(out.row(place), rows.row(i), rows.row_bytes);
        }
    });
}

// Relabels the edges from `first_edge` of the old graph on, with their targets' old index pointers, by `places` (old id
// to new) and copies them into the new lists of their targets: new_indptr[places[target]] onwards, less `first`. Leaves
// out edges outside [0, out.size()). Returns false where the graph's arrays contradict each other.
template <class Id>
bool relocate_edges(std::span<const Id> sources, Ids indptr, i64 first_target, i64 first_edge, Ids places,
                    Ids new_indptr, i64 first, std::span<Id> out, unsigned threads) {
    if (new_indptr.size() != places.size() + 1) throw std::out_of_range("new_indptr is of another graph");
    using Unsigned = std::make_unsigned_t<Id>;
    std::atomic<bool> sound{indptr.size() >= 2 || sources.empty()};
    if (!sound) return false;
    parallel(sources.size(), size_t{1} << 16, threads, [&](size_t from, size_t to, int) {
        const auto fail = [&] { sound.store(false, std::memory_order_relaxed); };
        i64 edge = first_edge + static_cast<i64>(from);
        const i64 stop = first_edge + static_cast<i64>(to);
        if (edge < indptr.front()) return fail();
        auto number = static_cast<size_t>(std::upper_bound(indptr.begin(), indptr.end(), edge) - indptr.begin() - 1);
        const Id* source = sources.data() + from;
        for (; edge < stop; ++number) {
            const size_t target = static_cast<size_t>(first_target) + number;
            if (number + 1 >= indptr.size() || target >= places.size() ||
                static_cast<u64>(places[target]) >= places.size())
                return fail();
            const i64 end = std::min(indptr[number + 1], stop);
            if (end <= edge) continue;
            const i64 begin = new_indptr[static_cast<size_t>(places[target])] + edge - indptr[number] - first;
            for (i64 i = 0; i < end - edge; ++i) {
                const auto old = static_cast<Unsigned>(*source++);
                if (old >= places.size()) return fail();
                const auto at = static_cast<u64>(begin + i);
                if (at < out.size()) out[at] = static_cast<Id>(places[old]);
            }
            edge = end;
        }
    });
    return sound;
}

template <class Id>
void bind_edges(nb::module_& m) {
    m.def("relocate_edges", &relocate_edges<Id>, "sources"_a.noconvert(), "indptr"_a.noconvert(), "first_target"_a,
          "first_edge"_a, "places"_a.noconvert(), "new_indptr"_a.noconvert(), "first"_a, "out"_a, "threads"_a,
          released());
}

}  // namespace

void bind_reorder(nb::module_& m) {
    m.def("scatter_rows", &scatter_rows, "rows"_a, "places"_a.noconvert(), "first"_a, "out"_a, "threads"_a, released());
    bind_edges<i32>(m);
    bind_edges<i64>(m);
}

}  // namespace outcore
