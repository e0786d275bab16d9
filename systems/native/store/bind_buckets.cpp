// Bindings of partitions and edge buckets, used by `systems/mariusgnn/`.
#include "read/bind_counts.hpp"
#include "store/edge_buckets.hpp"
#include "store/spread.hpp"

namespace outcore {
namespace {

DirectWritersOptions writing(u32 buffer_bytes, u32 writers, const std::string& mode) {
    return {buffer_bytes, writers, IoChoice::named(mode)};
}

template <class Index>
void bind_for(nb::module_& m, nb::class_<Spread>& spread) {
    m.def(
        "count_buckets",
        [](Ids indptr, i64 first_node, i64 first_edge, std::span<const Index> sources, std::span<const u8> partition_of,
           size_t partitions, std::span<i64> counts) {
            if (partitions == 0 || partitions > max_partitions || counts.size() != partitions * partitions)
                throw std::invalid_argument("counts is not [partitions^2]");
            count_buckets<Index>({indptr, first_node, first_edge, sources}, partition_of, partitions, counts);
        },
        "indptr"_a, "first_node"_a, "first_edge"_a, "sources"_a, "partition_of"_a, "partitions"_a, "counts"_a,
        released());
    m.def("partitions_of", &partitions_of<Index>, "sources"_a, "partition_of"_a, "order"_a, "threads"_a, released());
    m.def("place_edges", &place_edges<Index>, "sources"_a, "order"_a, "next"_a, "out"_a, released());
    m.def("fill_lists", &fill_lists<Index>, "nodes"_a, "kept"_a, "indptr"_a, "buckets"_a, "starts"_a, "lengths"_a,
          "indices"_a, released());
    spread.def(
        "lists",
        [](Spread& self, Ids indptr, i64 first_node, i64 first_edge, std::span<const Index> sources,
           std::span<const u8> region_of) { self.lists<Index>({indptr, first_node, first_edge, sources}, region_of); },
        "indptr"_a, "first_node"_a, "first_edge"_a, "sources"_a, "region_of"_a, released());
}

}  // namespace

void bind_buckets(nb::module_& m) {
    nb::class_<Spread> spread(m, "Spread", "Fills regions of a file through buffers, each a long direct write.");
    spread
        .def(
            "__init__",
            [](Spread* self, const std::string& path, Ids bounds, u32 buffer_bytes, u32 writers,
               const std::string& mode) {
                with_path(path, [&] {
                    new (self) Spread(path, Spread::regions_between(bounds), writing(buffer_bytes, writers, mode));
                });
            },
            "path"_a, "bounds"_a, nb::kw_only(), "buffer_bytes"_a, "writers"_a, "mode"_a)
        .def("append", &Spread::append, "region"_a, "data"_a, released())
        .def(
            "rows",
            [](Spread& self, Table rows, std::span<const u8> regions) {
                self.rows({rows.data, rows.num_rows * rows.row_bytes}, rows.row_bytes, regions);
            },
            "rows"_a, "regions"_a, released())
        .def("finish", &Spread::finish, released())
        .def_prop_ro("failure", &Spread::failure)
        .def_prop_ro("writes", &Spread::writes)
        .def_prop_ro("bytes_written", &Spread::bytes_written)
        .def_static(
            "bytes",
            [](u64 regions, u32 buffer_bytes, u32 writers) {
                return Spread::bytes(regions, writing(buffer_bytes, writers, "auto"));
            },
            "regions"_a, "buffer_bytes"_a, "writers"_a);
    m.attr("MAX_PARTITIONS") = max_partitions;
    m.def("assign_partitions", &assign_partitions, "first"_a, "size"_a, "seed"_a, "partition_of"_a, released());
    m.def(
        "count_kept",
        [](Ids nodes, std::span<const u32> degrees, std::span<const u8> order, std::span<const i16> slot_of,
           std::span<i64> indptr,
           std::span<u8> kept) { return count_kept({nodes, degrees, order}, slot_of, indptr, kept); },
        "nodes"_a, "degrees"_a, "order"_a, "slot_of"_a, "indptr"_a, "kept"_a, released());
    bind_for<i32>(m, spread);
    bind_for<i64>(m, spread);
}

}  // namespace outcore
