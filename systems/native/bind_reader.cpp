// Bindings of the reader as plain tuples and dicts; `systems/engine/io/reader.py` adds types and errors.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>
#include <system_error>
#include <tuple>

#include "bind.hpp"
#include "bind_io.hpp"
#include "group_read.hpp"
#include "reader.hpp"

namespace outcore {
namespace {

nb::tuple tuple_of(const ReadResult& result) {
    return nb::make_tuple(dict_of(result.counts), pair_of(result.failure));
}

// Group read with its staging buffer, which it writes to until it is closed.
using Staged = Holding<GroupRead, FlatBytes>;

}  // namespace

void bind_reader(nb::module_& m) {
    nb::class_<Reader>(m, "Reader")
        .def(
            "__init__",
            [](Reader* self, const std::string& path, std::uint64_t data_offset, std::uint64_t num_rows,
               std::uint64_t row_bytes, std::uint32_t depth, std::uint32_t granularity, bool merge,
               std::uint64_t max_request_bytes, std::uint64_t merge_gap_bytes, const std::string& mode,
               std::uint32_t threads, bool register_buffers, std::uint64_t buffer_bytes) {
                ReaderOptions options;
                options.data_offset = data_offset;
                options.num_rows = num_rows;
                options.row_bytes = row_bytes;
                options.depth = depth;
                options.granularity = granularity;
                options.rule = {merge, max_request_bytes, merge_gap_bytes};
                options.want_ring = mode != "pread";
                options.need_ring = mode == "io_uring";
                options.register_buffers = register_buffers;
                options.threads = threads;
                options.buffer_bytes = buffer_bytes;
                try {
                    new (self) Reader(path, options);
                } catch (const std::system_error& error) {
                    raise_os_error(error, path);
                }
            },
            nb::arg("path"), nb::kw_only(), nb::arg("data_offset"), nb::arg("num_rows"), nb::arg("row_bytes"),
            nb::arg("depth"), nb::arg("granularity"), nb::arg("merge"), nb::arg("max_request_bytes"),
            nb::arg("merge_gap_bytes"), nb::arg("mode"), nb::arg("threads"), nb::arg("register_buffers"),
            nb::arg("buffer_bytes"))
        .def_prop_ro("mode", &Reader::mode)
        .def_prop_ro("memory_bytes", &Reader::memory_bytes)
        .def_prop_ro("block_bytes", [](const Reader& self) { return self.layout().block_bytes; })
        .def_prop_ro("file_bytes", [](const Reader& self) { return self.file().size(); })
        .def("read",
             [](Reader& self, const Ids& ids, const Bytes& out, const std::optional<Ids>& out_rows) {
                 if (out.shape(1) != self.layout().row_bytes) {
                     throw std::invalid_argument("out's rows have another size than the file's");
                 }
                 ReadResult result;
                 {
                     const nb::gil_scoped_release release;
                     const OutTable table{reinterpret_cast<std::byte*>(out.data()), out.shape(0)};
                     result = self.read(span_of(ids), table, out_rows ? span_of(*out_rows) : std::span<const std::int64_t>{});
                 }
                 return tuple_of(result);
             },
             nb::arg("ids"), nb::arg("out"), nb::arg("out_rows").none())
        .def("counts_of",
             [](const Reader& self, const Ids& ids) {
                 ReadCounts counts;
                 {
                     const nb::gil_scoped_release release;
                     counts = self.counts_of(span_of(ids));
                 }
                 return dict_of(counts);
             },
             nb::arg("ids"))
        .def("read_range",
             [](Reader& self, std::uint64_t offset, const FlatBytes& out, std::uint32_t request_bytes) {
                 ReadResult result;
                 {
                     const nb::gil_scoped_release release;
                     result = self.read_range(offset, bytes_of(out), request_bytes);
                 }
                 return tuple_of(result);
             },
             nb::arg("offset"), nb::arg("out"), nb::arg("request_bytes"))
        .def("read_ranges",
             [](Reader& self, const Ids& offsets, const Ids& sizes, const Ids& positions, const FlatBytes& out,
                std::uint32_t request_bytes) {
                 if (sizes.size() != offsets.size() || positions.size() != offsets.size()) {
                     throw std::invalid_argument("offsets, sizes and positions differ in length");
                 }
                 std::vector<FileRange> ranges;
                 ranges.reserve(offsets.size());
                 for (std::size_t i = 0; i < offsets.size(); ++i) {
                     const auto offset = static_cast<std::uint64_t>(offsets.data()[i]);
                     const auto bytes = static_cast<std::uint64_t>(sizes.data()[i]);
                     const auto position = static_cast<std::uint64_t>(positions.data()[i]);
                     if (bytes > out.size() || position > out.size() - bytes) {
                         throw std::out_of_range("a range would be read past the end of out");
                     }
                     ranges.push_back({offset, bytes, reinterpret_cast<std::byte*>(out.data()) + position});
                 }
                 ReadResult result;
                 {
                     const nb::gil_scoped_release release;
                     result = self.read_ranges(ranges, request_bytes);
                 }
                 return tuple_of(result);
             },
             nb::arg("offsets"), nb::arg("sizes"), nb::arg("positions"), nb::arg("out"), nb::arg("request_bytes"));

    nb::class_<Staged>(m, "GroupRead")
        .def(
            "__init__",
            [](Staged* self, Reader& reader, const Ids& ids, const FlatBytes& staging, std::uint32_t group_rows,
               bool own_slices) {
                const nb::gil_scoped_release release;
                new (self) Staged([&] { return GroupRead(reader, span_of(ids), bytes_of(staging), group_rows, own_slices); }, staging);
            },
            nb::arg("reader"), nb::arg("ids"), nb::arg("staging"), nb::arg("group_rows"), nb::arg("own_slices") = true,
            nb::keep_alive<1, 2>())
        // Returns (slice, positions) of a group, None at the end, or a str: "starved" | "failed".
        .def("next",
             [](Staged& self) -> nb::object {
                 GroupRead::Group group{};
                 GroupRead::State state{};
                 std::vector<std::int64_t> positions;
                 {
                     const nb::gil_scoped_release release;
                     state = self->next(group);
                     positions.reserve(group.rows.size());
                     for (const RowRef& row : group.rows) positions.push_back(row.position);
                 }
                 switch (state) {
                     case GroupRead::State::group:
                         return nb::make_tuple(group.slice, to_numpy(std::move(positions)));
                     case GroupRead::State::failed: return nb::str("failed");
                     case GroupRead::State::starved: return nb::str("starved");
                     default: return nb::none();
                 }
             })
        .def("give_back", [](Staged& self, std::uint32_t slice) { self->give_back(slice); }, nb::arg("slice"))
        .def("close", [](Staged& self) { self->close(); }, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("counts", [](const Staged& self) { return dict_of(self->counts()); })
        .def_prop_ro("failure", [](const Staged& self) { return pair_of(self->failure()); });

    m.def(
        "reader_buffer_bytes",
        [](std::uint64_t data_offset, std::uint64_t row_bytes, std::uint32_t block_bytes,
           std::uint64_t max_request_bytes, std::uint32_t depth) {
            check_table(data_offset, 0, row_bytes);
            if (block_bytes == 0) throw std::invalid_argument("block_bytes must be positive");
            const std::uint64_t covering = ReadPlan::covering_bytes({data_offset, 0, row_bytes, 0, block_bytes});
            return (Reader::default_buffer_bytes(covering, max_request_bytes, depth, block_bytes) + 4095) / 4096 * 4096;
        },
        nb::arg("data_offset"), nb::arg("row_bytes"), nb::arg("block_bytes"), nb::arg("max_request_bytes"),
        nb::arg("depth"));
    m.def(
        "block_bytes",
        [](const std::string& path) {
            try {
                return DirectFile(path).block_bytes();
            } catch (const std::system_error& error) {
                raise_os_error(error, path);
            }
        },
        nb::arg("path"));
    m.def("plan_bytes", &ReadPlan::bytes, nb::arg("num_ids"));
}

}  // namespace outcore
