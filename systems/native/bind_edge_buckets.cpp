// Bindings of partitions and edge buckets; `systems/engine/partitioned.py` and `systems/mariusgnn/` give them meaning.
#include "bind.hpp"
#include "edge_buckets.hpp"

namespace outcore {
namespace {

void check_square(std::size_t size, std::size_t partitions) {
    if (partitions == 0 || partitions > max_partitions || size != partitions * partitions)
        throw std::invalid_argument("counts is not [partitions^2]");
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def(
        "count_buckets",
        [](const In<std::int64_t>& indptr, std::int64_t first_node, std::int64_t first_edge, const In<Index>& sources,
           const In<std::uint8_t>& partition_of, std::size_t partitions, const Out<std::int64_t>& counts) {
            check_square(counts.size(), partitions);
            const nb::gil_scoped_release release;
            count_buckets<Index>({in(indptr), first_node, first_edge, in(sources)}, in(partition_of), partitions, out(counts));
        },
        nb::arg("indptr"), nb::arg("first_node"), nb::arg("first_edge"), nb::arg("sources"), nb::arg("partition_of"),
        nb::arg("partitions"), nb::arg("counts"));
    m.def(
        "split_edges",
        [](const In<std::int64_t>& indptr, std::int64_t first_node, std::int64_t first_edge, const In<Index>& sources,
           const In<std::uint8_t>& partition_of, std::size_t partitions, const Out<std::int64_t>& counts,
           const Out<std::uint8_t>& order, const Out<Index>& sorted) {
            check_square(counts.size(), partitions);
            const nb::gil_scoped_release release;
            split_edges<Index>({in(indptr), first_node, first_edge, in(sources)}, in(partition_of), partitions, out(counts),
                               out(order), out(sorted));
        },
        nb::arg("indptr"), nb::arg("first_node"), nb::arg("first_edge"), nb::arg("sources"), nb::arg("partition_of"),
        nb::arg("partitions"), nb::arg("counts"), nb::arg("order"), nb::arg("sorted"));
    m.def(
        "fill_lists",
        [](const In<std::int64_t>& nodes, const In<std::uint8_t>& kept, const In<std::int64_t>& indptr,
           const In<Index>& buckets, const In<std::int64_t>& starts, const In<std::int64_t>& lengths,
           const Out<Index>& indices) {
            const nb::gil_scoped_release release;
            fill_lists<Index>(in(nodes), in(kept), in(indptr), in(buckets), in(starts), in(lengths), out(indices));
        },
        nb::arg("nodes"), nb::arg("kept"), nb::arg("indptr"), nb::arg("buckets"), nb::arg("starts"), nb::arg("lengths"),
        nb::arg("indices"));
}

}  // namespace

void bind_edge_buckets(nb::module_& m) {
    m.attr("MAX_PARTITIONS") = max_partitions;
    m.def(
        "assign_partitions",
        [](const In<std::int64_t>& first, std::uint64_t size, std::uint64_t seed, const Out<std::uint8_t>& partition_of) {
            const nb::gil_scoped_release release;
            assign_partitions(in(first), size, seed, out(partition_of));
        },
        nb::arg("first"), nb::arg("size"), nb::arg("seed"), nb::arg("partition_of"));
    m.def(
        "count_kept",
        [](const In<std::int64_t>& nodes, const In<std::uint32_t>& degrees, const In<std::uint8_t>& order,
           const In<std::int16_t>& slot_of, const Out<std::int64_t>& indptr, const Out<std::uint8_t>& kept) {
            const nb::gil_scoped_release release;
            return count_kept({in(nodes), in(degrees), in(order)}, in(slot_of), out(indptr), out(kept));
        },
        nb::arg("nodes"), nb::arg("degrees"), nb::arg("order"), nb::arg("slot_of"), nb::arg("indptr"), nb::arg("kept"));
    bind_for<std::int32_t>(m);
    bind_for<std::int64_t>(m);
}

}  // namespace outcore
