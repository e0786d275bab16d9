// Bindings of partitions and edge buckets, used by `systems/mariusgnn/partitioned.py` and `systems/mariusgnn/`.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>
#include <system_error>
#include <tuple>

#include "bind.hpp"
#include "bind_io.hpp"
#include "edge_buckets.hpp"
#include "spread.hpp"

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
            count_buckets<Index>({span_of(indptr), first_node, first_edge, span_of(sources)}, span_of(partition_of), partitions, span_of(counts));
        },
        nb::arg("indptr"), nb::arg("first_node"), nb::arg("first_edge"), nb::arg("sources"), nb::arg("partition_of"),
        nb::arg("partitions"), nb::arg("counts"));
    m.def(
        "partitions_of",
        [](const In<Index>& sources, const In<std::uint8_t>& partition_of, const Out<std::uint8_t>& order, unsigned threads) {
            const nb::gil_scoped_release release;
            partitions_of<Index>(span_of(sources), span_of(partition_of), span_of(order), threads);
        },
        nb::arg("sources"), nb::arg("partition_of"), nb::arg("order"), nb::arg("threads"));
    m.def(
        "place_edges",
        [](const In<Index>& sources, const In<std::uint8_t>& order, const Out<std::int64_t>& next, const Out<Index>& to) {
            const nb::gil_scoped_release release;
            place_edges<Index>(span_of(sources), span_of(order), span_of(next), span_of(to));
        },
        nb::arg("sources"), nb::arg("order"), nb::arg("next"), nb::arg("out"));
    m.def(
        "fill_lists",
        [](const In<std::int64_t>& nodes, const In<std::uint8_t>& kept, const In<std::int64_t>& indptr,
           const In<Index>& buckets, const In<std::int64_t>& starts, const In<std::int64_t>& lengths,
           const Out<Index>& indices) {
            const nb::gil_scoped_release release;
            fill_lists<Index>(span_of(nodes), span_of(kept), span_of(indptr), span_of(buckets), span_of(starts), span_of(lengths), span_of(indices));
        },
        nb::arg("nodes"), nb::arg("kept"), nb::arg("indptr"), nb::arg("buckets"), nb::arg("starts"), nb::arg("lengths"),
        nb::arg("indices"));
}

template <class Index>
void bind_lists(nb::class_<Spread>& spread) {
    spread.def(
        "lists",
        [](Spread& self, const In<std::int64_t>& indptr, std::int64_t first_node, std::int64_t first_edge,
           const In<Index>& sources, const In<std::uint8_t>& region_of) {
            const nb::gil_scoped_release release;
            self.lists<Index>({span_of(indptr), first_node, first_edge, span_of(sources)}, span_of(region_of));
        },
        nb::arg("indptr"), nb::arg("first_node"), nb::arg("first_edge"), nb::arg("sources"), nb::arg("region_of"));
}

DirectWritersOptions writing(std::uint32_t buffer_bytes, std::uint32_t writers, const std::string& mode) {
    return {buffer_bytes, writers, mode != "pread", mode == "io_uring"};
}

std::optional<std::tuple<int, std::uint64_t>> pair_of(const std::optional<WriteFailure>& failure) {
    if (!failure) return std::nullopt;
    return std::tuple{failure->code, failure->offset};
}

// Binds the writer that fills the regions of one file, used by `systems/mariusgnn/partition_writer.py`.
void bind_spread(nb::module_& m) {
    nb::class_<Spread> spread(m, "Spread");
    spread
        .def(
            "__init__",
            [](Spread* self, const std::string& path, const In<std::int64_t>& bounds, std::uint32_t buffer_bytes,
               std::uint32_t writers, const std::string& mode) {
                try {
                    new (self) Spread(path, span_of(bounds), writing(buffer_bytes, writers, mode));
                } catch (const std::system_error& error) {
                    raise_os_error(error, path);
                }
            },
            nb::arg("path"), nb::arg("bounds"), nb::kw_only(), nb::arg("buffer_bytes"), nb::arg("writers"), nb::arg("mode"))
        .def(
            "append",
            [](Spread& self, std::size_t region, const In<std::uint8_t>& data) {
                const nb::gil_scoped_release release;
                self.append(region, std::as_bytes(span_of(data)));
            },
            nb::arg("region"), nb::arg("data"))
        .def(
            "rows",
            [](Spread& self, const ReadOnlyBytes& rows, const In<std::uint8_t>& regions) {
                const nb::gil_scoped_release release;
                self.rows(std::as_bytes(std::span(rows.data(), rows.size())), rows.shape(1), span_of(regions));
            },
            nb::arg("rows"), nb::arg("regions"))
        .def("finish",
             [](Spread& self) {
                 const nb::gil_scoped_release release;
                 return pair_of(self.finish());
             })
        .def_prop_ro("failure", [](const Spread& self) { return pair_of(self.failure()); })
        .def_prop_ro("writes", &Spread::writes)
        .def_prop_ro("bytes_written", &Spread::bytes_written)
        .def_static(
            "bytes",
            [](std::uint64_t regions, std::uint32_t buffer_bytes, std::uint32_t writers) {
                return Spread::bytes(regions, writing(buffer_bytes, writers, "auto"));
            },
            nb::arg("regions"), nb::arg("buffer_bytes"), nb::arg("writers"));
    bind_lists<std::int32_t>(spread);
    bind_lists<std::int64_t>(spread);
}

}  // namespace

void bind_edge_buckets(nb::module_& m) {
    m.attr("MAX_PARTITIONS") = max_partitions;
    m.def(
        "assign_partitions",
        [](const In<std::int64_t>& first, std::uint64_t size, std::uint64_t seed, const Out<std::uint8_t>& partition_of) {
            const nb::gil_scoped_release release;
            assign_partitions(span_of(first), size, seed, span_of(partition_of));
        },
        nb::arg("first"), nb::arg("size"), nb::arg("seed"), nb::arg("partition_of"));
    m.def(
        "count_kept",
        [](const In<std::int64_t>& nodes, const In<std::uint32_t>& degrees, const In<std::uint8_t>& order,
           const In<std::int16_t>& slot_of, const Out<std::int64_t>& indptr, const Out<std::uint8_t>& kept) {
            const nb::gil_scoped_release release;
            return count_kept({span_of(nodes), span_of(degrees), span_of(order)}, span_of(slot_of), span_of(indptr), span_of(kept));
        },
        nb::arg("nodes"), nb::arg("degrees"), nb::arg("order"), nb::arg("slot_of"), nb::arg("indptr"), nb::arg("kept"));
    bind_for<std::int32_t>(m);
    bind_for<std::int64_t>(m);
    bind_spread(m);
}

}  // namespace outcore
