// Bindings of packing and row distribution; `systems/engine/store/` and `systems/engine/passes/` add the types.
#include <nanobind/stl/function.h>
#include <nanobind/stl/vector.h>

#include "base/xxh3.hpp"
#include "read/bind_counts.hpp"
#include "store/distribute.hpp"
#include "store/packing.hpp"

OUTCORE_TUPLE(PackFailure, 4)
OUTCORE_TUPLE(DistributeFailure, 3)
OUTCORE_TUPLE(DistributeResult, 5)

namespace outcore {
namespace {

using StopFlag = std::atomic<bool>;

// One row of numbers for each chunk: its file, where there are several, and offset, begin and end.
using Chunks = RowsOf<const i64>;

std::vector<PackChunk> chunks_of(const Chunks& rows, bool with_file) {
    if (rows.row_bytes != (with_file ? 4U : 3U))
        throw std::invalid_argument(with_file ? "chunks have four columns: file, offset, begin, end"
                                              : "chunks have three columns: offset, begin, end");
    std::vector<PackChunk> chunks(rows.num_rows);
    for (size_t i = 0; i < chunks.size(); ++i) {
        const i64* row = rows.row(i);
        if (with_file && *row != static_cast<u32>(*row)) throw std::invalid_argument("a chunk lies outside its files");
        const u32 file = with_file ? static_cast<u32>(*row++) : 0;
        chunks[i] = {file, static_cast<u64>(row[0]), static_cast<u64>(row[1]), static_cast<u64>(row[2])};
    }
    return chunks;
}

using Packed = nb::typed<nb::tuple, nb::typed<nb::dict, nb::str, int>, Numpy<u64>, std::optional<PackFailure>>;

Packed pack(const std::string& path, u64 data_offset, u64 num_rows, u64 row_bytes,
            const std::vector<std::string>& files, Chunks chunks, std::span<const u32> ids, u64 partition_rows,
            u32 buffers, u64 write_bytes, bool hold, u32 threads, u32 depth, u32 request_bytes,
            const std::string& mode) {
    const auto list = chunks_of(chunks, true);
    const PackOptions options{partition_rows, buffers, write_bytes,
                              hold,           threads, {depth, request_bytes, IoChoice::named(mode)}};
    PackResult result = with_path(path, [&] {
        return unlocked([&] { return pack_pass({path, data_offset, num_rows, row_bytes}, files, list, ids, options); });
    });
    const nb::dict counts = as_dict({{"partitions", result.partitions},
                                     {"reads", result.reads},
                                     {"bytes_read", result.bytes_read},
                                     {"writes", result.writes},
                                     {"bytes_written", result.bytes_written}});
    return Packed(nb::make_tuple(counts, std::move(result.digests), result.failure));
}

DistributeResult distribute_rows(const std::string& path, u64 data_offset, u64 num_rows, u64 row_bytes,
                                 const std::string& file, Chunks chunks, std::span<const u32> ids, u32 region_bytes,
                                 u32 regions, u32 depth, u64 gap_bytes, u32 buffer_bytes, u32 writers,
                                 const std::string& mode, const StopFlag& stop, bool whole, std::span<const u32> kept,
                                 RowsOf<std::byte> room, const std::function<void(u64, u64)>& give) {
    const auto list = chunks_of(chunks, false);
    const DistributeOptions options{region_bytes,          regions, depth, gap_bytes, buffer_bytes, writers,
                                    IoChoice::named(mode), whole};
    return with_path(path, [&] {
        return distribute({path, data_offset, num_rows, row_bytes}, file, list, ids, options, stop, {kept, room, give});
    });
}

}  // namespace

void bind_store(nb::module_& m) {
    m.def("pack_pass", &pack, "path"_a, nb::kw_only(), "data_offset"_a, "num_rows"_a, "row_bytes"_a, "files"_a,
          "chunks"_a, "ids"_a, "partition_rows"_a, "buffers"_a, "write_bytes"_a, "hold"_a, "threads"_a, "depth"_a,
          "request_bytes"_a, "mode"_a);
    m.def("partition_buffer_bytes", &partition_buffer_bytes, "partition_rows"_a, "row_bytes"_a);
    m.def(
        "xxh3", [](std::span<const std::byte> data) { return xxh3(data); }, "data"_a, released(),
        "XXH3-64 of the bytes.");
    nb::class_<StopFlag>(m, "StopFlag").def(nb::init<>()).def("set", [](StopFlag& self) { self = true; });
    m.def("distribute", &distribute_rows, nb::kw_only(), "path"_a, "data_offset"_a, "num_rows"_a, "row_bytes"_a,
          "file"_a, "chunks"_a, "ids"_a, "region_bytes"_a, "regions"_a, "depth"_a, "gap_bytes"_a, "buffer_bytes"_a,
          "writers"_a, "mode"_a, "stop"_a, "whole"_a, "kept"_a, "room"_a, "give"_a, released(),
          "Returns (reads, writes, bytes written, digests, failure); `give` takes kept rows out of `room`.");
    m.def(
        "distribute_bytes",
        [](u64 row_bytes, u64 chunks, u32 region_bytes, u32 regions, u32 buffer_bytes, u32 writers) {
            if (row_bytes == 0) throw std::invalid_argument("row_bytes must be positive");
            return distribute_bytes({region_bytes, regions, 1, 0, buffer_bytes, writers, {}}, row_bytes, chunks);
        },
        nb::kw_only(), "row_bytes"_a, "chunks"_a, "region_bytes"_a, "regions"_a, "buffer_bytes"_a, "writers"_a);
}

}  // namespace outcore
