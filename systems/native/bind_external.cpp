// Bindings of out-of-core sampling, row distribution and the slot planner; `systems/outcore/` adds the types.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "bind.hpp"
#include "bind_io.hpp"
#include "distribute.hpp"
#include "external_sampler.hpp"
#include "slot_plan.hpp"

namespace outcore {
namespace {

struct StopFlag {
    std::atomic<bool> value{false};
};

DistributeOptions distribute_options(std::uint32_t region_bytes, std::uint32_t regions, std::uint32_t depth, std::uint64_t gap_bytes,
                                     std::uint32_t buffer_bytes, std::uint32_t writers, const std::string& mode) {
    return {region_bytes, regions, depth, gap_bytes, buffer_bytes, writers, mode != "pread", mode == "io_uring"};
}

nb::dict dict_of(const PieceReads& reads) {
    nb::dict sizes;
    for (const auto& [size, count] : reads.by_size) sizes[nb::int_(size)] = count;
    nb::dict result;
    result["requests"] = reads.requests;
    result["bytes_read"] = reads.bytes_read;
    result["bytes_useful"] = reads.bytes_useful;
    result["requests_by_size"] = sizes;
    return result;
}

using Nodes = Out<std::uint32_t>;
// Slot planner with the nodes of the latest plan, which it keeps reading.
using Planner = Holding<SlotPlanner, In<std::uint32_t>>;

nb::tuple distribute_rows(const std::string& path, std::uint64_t data_offset, std::uint64_t num_rows, std::uint64_t row_bytes,
                          const std::string& file, const Chunks& chunks, const In<std::uint32_t>& ids, std::uint32_t region_bytes,
                          std::uint32_t regions, std::uint32_t depth, std::uint64_t gap_bytes, std::uint32_t buffer_bytes,
                          std::uint32_t writers, const std::string& mode, const StopFlag& stop) {
    if (chunks.shape(1) != 3) throw std::invalid_argument("chunks have three columns: offset, begin, end");
    std::vector<DistributeChunk> list(chunks.shape(0));
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::int64_t* row = chunks.data() + 3 * i;
        list[i] = {static_cast<std::uint64_t>(row[0]), static_cast<std::uint64_t>(row[1]), static_cast<std::uint64_t>(row[2])};
    }
    DistributeResult result;
    try {
        const nb::gil_scoped_release release;
        result = distribute({path, data_offset, num_rows, row_bytes}, file, list, span_of(ids),
                            distribute_options(region_bytes, regions, depth, gap_bytes, buffer_bytes, writers, mode), stop.value);
    } catch (const std::system_error& error) {
        raise_os_error(error, path);
    }
    std::optional<std::tuple<int, bool, std::uint64_t>> failure;
    if (result.failure) failure = std::tuple{result.failure->code, result.failure->writing, result.failure->offset};
    return nb::make_tuple(dict_of(result.reads), result.writes, result.bytes_written, to_numpy(std::move(result.digests)), failure);
}

}  // namespace

void bind_external(nb::module_& m) {
    nb::class_<ExternalSampler>(m, "ExternalSampler")
        .def(
            "__init__",
            [](ExternalSampler* self, const std::string& indptr, std::uint64_t indptr_offset, const std::string& indices,
               std::uint64_t indices_offset, std::uint64_t num_nodes, std::uint64_t num_edges, std::uint32_t index_bytes,
               const std::vector<std::int64_t>& fanout, std::uint64_t seed, bool replace, std::uint64_t gap_bytes,
               std::uint32_t piece_bytes, std::uint32_t pieces, std::uint32_t depth, std::uint32_t group_nodes,
               std::uint32_t threads, const std::string& mode) {
                try {
                    new (self) ExternalSampler({indptr, indptr_offset, 8, num_nodes + 1},
                                               {indices, indices_offset, index_bytes, num_edges},
                                               {fanout, seed, replace, gap_bytes, piece_bytes, pieces, depth, group_nodes, threads,
                                                mode != "pread", mode == "io_uring"});
                } catch (const std::system_error& error) {
                    raise_os_error(error, indptr);
                }
            },
            nb::kw_only(), nb::arg("indptr"), nb::arg("indptr_offset"), nb::arg("indices"), nb::arg("indices_offset"),
            nb::arg("num_nodes"), nb::arg("num_edges"), nb::arg("index_bytes"), nb::arg("fanout"), nb::arg("seed"),
            nb::arg("replace"), nb::arg("gap_bytes"), nb::arg("piece_bytes"), nb::arg("pieces"), nb::arg("depth"),
            nb::arg("group_nodes"), nb::arg("threads"), nb::arg("mode"))
        .def(
            "begin",
            [](ExternalSampler& self, std::uint64_t epoch, const Ids& numbers, const Ids& seeds, const Ids& offsets) {
                self.begin(epoch, span_of(numbers), span_of(seeds), span_of(offsets));
            },
            nb::arg("epoch"), nb::arg("numbers"), nb::arg("seeds"), nb::arg("offsets"))
        .def("pass_over",
             [](ExternalSampler& self) {
                 std::optional<ExternalFailure> failure;
                 {
                     const nb::gil_scoped_release release;
                     failure = self.pass();
                 }
                 std::optional<std::tuple<int, bool, std::uint64_t>> found;
                 if (failure) found = std::tuple{failure->code, failure->in_indices, failure->offset};
                 return found;
             })
        .def("finish", &ExternalSampler::finish)
        .def("forget", &ExternalSampler::forget)
        // Returns, for each mini-batch laid out, head bytes, body bytes and nodes, as flat int64.
        .def(
            "lay_out",
            [](ExternalSampler& self, std::size_t begin, const Ids& labels, const Ids& offsets, const FlatBytes& to, const std::optional<Nodes>& nodes) {
                std::vector<std::int64_t> sizes;
                {
                    const nb::gil_scoped_release release;
                    std::span<std::byte> room = bytes_of(to);
                    std::optional<std::span<std::uint32_t>> places;
                    if (nodes) places = {nodes->data(), nodes->size()};
                    for (const auto& made : self.lay_out(begin, span_of(labels), span_of(offsets), room, places))
                        for (const auto size : {made.head_bytes, made.body_bytes, made.nodes}) sizes.push_back(static_cast<std::int64_t>(size));
                }
                return to_numpy(std::move(sizes));
            },
            nb::arg("begin"), nb::arg("labels"), nb::arg("offsets"), nb::arg("to"), nb::arg("nodes").none())
        .def(
            "needs",
            [](const ExternalSampler& self, std::size_t i, std::uint64_t labels) {
                const LaidOut made = self.laid_out(i, labels);
                return nb::make_tuple(made.bytes, made.nodes);
            },
            nb::arg("i"), nb::arg("labels"))
        .def("stop", &ExternalSampler::stop)
        .def_prop_ro("memory_bytes", &ExternalSampler::memory_bytes)
        .def("reads", [](const ExternalSampler& self) { return dict_of(self.reads()); });
    nb::class_<StopFlag>(m, "StopFlag").def(nb::init<>()).def("set", [](StopFlag& self) { self.value = true; });
    m.def("distribute", &distribute_rows, nb::kw_only(), nb::arg("path"), nb::arg("data_offset"), nb::arg("num_rows"),
          nb::arg("row_bytes"), nb::arg("file"), nb::arg("chunks"), nb::arg("ids"), nb::arg("region_bytes"), nb::arg("regions"),
          nb::arg("depth"), nb::arg("gap_bytes"), nb::arg("buffer_bytes"), nb::arg("writers"), nb::arg("mode"), nb::arg("stop"));
    m.def(
        "distribute_bytes",
        [](std::uint64_t row_bytes, std::uint64_t chunks, std::uint32_t region_bytes, std::uint32_t regions, std::uint32_t buffer_bytes,
           std::uint32_t writers) {
            if (row_bytes == 0) throw std::invalid_argument("row_bytes must be positive");
            return distribute_bytes(distribute_options(region_bytes, regions, 1, 0, buffer_bytes, writers, "auto"), row_bytes, chunks);
        },
        nb::kw_only(), nb::arg("row_bytes"), nb::arg("chunks"), nb::arg("region_bytes"), nb::arg("regions"), nb::arg("buffer_bytes"),
        nb::arg("writers"));
    nb::class_<Planner>(m, "SlotPlanner")
        .def(
            "__init__",
            [](Planner* self, std::uint32_t slots, std::uint32_t window, bool keep, std::uint32_t threads) {
                new (self) Planner([&] { return SlotPlanner(slots, window, keep, threads); }, {});
            },
            nb::arg("slots"), nb::arg("window"), nb::arg("keep"), nb::arg("threads") = 1)
        .def(
            "plan",
            [](Planner& self, const In<std::uint32_t>& nodes, const Ids& offsets, const Ids& seeds) {
                self->clear();
                self.hold(nodes);
                const nb::gil_scoped_release release;
                self->plan(span_of(nodes), span_of(offsets), span_of(seeds));
            },
            nb::arg("nodes"), nb::arg("offsets"), nb::arg("seeds"))
        .def(
            "misses",
            [](const Planner& self, std::size_t i) {
                SlotMisses found;
                {
                    const nb::gil_scoped_release release;
                    found = self->misses(i);
                }
                return nb::make_tuple(to_numpy(std::move(found.ids)), to_numpy(std::move(found.slots)));
            },
            nb::arg("i"))
        .def("slots", [](const Planner& self, std::size_t i) { return to_numpy(self->slots(i)); }, nb::arg("i"))
        .def("miss_counts", [](const Planner& self) { return to_numpy(self->miss_counts()); })
        .def(
            "copy_misses",
            [](const Planner& self, const Nodes& to) {
                const nb::gil_scoped_release release;
                self->copy_misses({to.data(), to.size()});
            },
            nb::arg("to"))
        .def(
            "sampled_misses",
            [](const Planner& self, std::uint64_t region_rows, std::uint64_t every) {
                std::vector<std::int64_t> found;
                {
                    const nb::gil_scoped_release release;
                    found = self->sampled_misses(region_rows, every);
                }
                return to_numpy(std::move(found));
            },
            nb::arg("region_rows"), nb::arg("every"))
        .def("list_bytes", [](const Planner& self, std::size_t i) { return self->list_bytes(i); }, nb::arg("i"))
        // Writes the address lists from `begin` on that fit in `to`; returns (next list, bytes of each, XXH3 of each).
        .def(
            "write_lists",
            [](const Planner& self, std::size_t begin, const FlatBytes& to) {
                std::vector<std::int64_t> sizes;
                std::vector<std::uint64_t> digests;
                {
                    const nb::gil_scoped_release release;
                    std::span<std::byte> room = bytes_of(to);
                    for (; begin < self->batches() && self->list_bytes(begin) <= room.size(); ++begin) {
                        digests.push_back(self->write_list(begin, room));
                        sizes.push_back(static_cast<std::int64_t>(self->list_bytes(begin)));
                        room = room.subspan(static_cast<std::size_t>(sizes.back()));
                    }
                }
                return nb::make_tuple(begin, to_numpy(std::move(sizes)), to_numpy(std::move(digests)));
            },
            nb::arg("begin"), nb::arg("to"))
        .def("clear",
             [](Planner& self) {
                 self->clear();
                 self.hold({});
             })
        .def_prop_ro("hits", [](const Planner& self) { return self->hits(); })
        .def_prop_ro("carried", [](const Planner& self) { return self->carried(); })
        .def_static("bytes", &SlotPlanner::bytes, nb::arg("slots"), nb::arg("batches"), nb::arg("accesses"),
                    nb::arg("threads") = 1);
}

}  // namespace outcore
