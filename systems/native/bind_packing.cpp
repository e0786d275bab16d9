// Bindings of batched packing, MinHash and the range queue: plain tuples; `systems/engine/packing.py` gives them types.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "bind.hpp"
#include "bind_io.hpp"
#include "minhash.hpp"
#include "packing.hpp"
#include "range_queue.hpp"
#include "xxh3.hpp"

namespace outcore {
namespace {

using Ids32 = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Chunks = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // [n, 4]: file, offset, begin, end
using ConstBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> array_of(std::vector<T> values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner);
}

RangeQueueOptions queue_options(std::uint32_t depth, std::uint32_t request_bytes, const std::string& mode) {
    return {depth, request_bytes, mode != "pread", mode == "io_uring"};
}

nb::tuple pack(const std::string& path, std::uint64_t data_offset, std::uint64_t num_rows, std::uint64_t row_bytes,
               const std::vector<std::string>& files, const Chunks& chunks, const Ids32& ids,
               std::uint64_t partition_rows, std::uint32_t buffers, std::uint64_t write_bytes, bool hold, std::uint32_t threads, std::uint32_t depth,
               std::uint32_t request_bytes, const std::string& mode) {
    if (chunks.shape(1) != 4) throw std::invalid_argument("chunks have four columns");
    std::vector<PackChunk> list(chunks.shape(0));
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::int64_t* row = chunks.data() + 4 * i;
        list[i] = {static_cast<std::uint32_t>(row[0]), static_cast<std::uint64_t>(row[1]),
                   static_cast<std::uint64_t>(row[2]), static_cast<std::uint64_t>(row[3])};
    }
    PackResult result;
    try {
        const nb::gil_scoped_release release;
        result = pack_pass({path, data_offset, num_rows, row_bytes}, files, list, {ids.data(), ids.size()},
                           {partition_rows, buffers, write_bytes, hold, threads, queue_options(depth, request_bytes, mode)});
    } catch (const std::system_error& error) {
        raise_os_error(error, path);
    }
    nb::dict counts;
    counts["partitions"] = result.partitions;
    counts["reads"] = result.reads;
    counts["bytes_read"] = result.bytes_read;
    counts["writes"] = result.writes;
    counts["bytes_written"] = result.bytes_written;
    std::optional<std::tuple<int, bool, std::uint32_t, std::uint64_t>> failure;
    if (result.failure) {
        failure = std::tuple{result.failure->code, result.failure->writing, result.failure->file, result.failure->offset};
    }
    return nb::make_tuple(counts, array_of(std::move(result.digests)), failure);
}

}  // namespace

void bind_packing(nb::module_& m) {
    nb::class_<RangeQueue>(m, "RangeQueue")
        .def(
            "__init__",
            [](RangeQueue* self, const std::string& path, std::uint32_t depth, std::uint32_t request_bytes,
               const std::string& mode) {
                try {
                    new (self) RangeQueue(path, queue_options(depth, request_bytes, mode));
                } catch (const std::system_error& error) {
                    raise_os_error(error, path);
                }
            },
            nb::arg("path"), nb::kw_only(), nb::arg("depth"), nb::arg("request_bytes"), nb::arg("mode"))
        .def_prop_ro("mode", &RangeQueue::mode)
        .def_prop_ro("block_bytes", &RangeQueue::block_bytes)
        .def("submit",
             [](RangeQueue& self, std::uint64_t offset, std::uint64_t need, const FlatBytes& out) {
                 return self.submit(offset, need, {reinterpret_cast<std::byte*>(out.data()), out.size()});
             },
             nb::arg("offset"), nb::arg("need"), nb::arg("out"))
        .def("wait",
             [](RangeQueue& self, std::uint64_t ticket) {
                 const nb::gil_scoped_release release;
                 const RangeQueue::Arrival arrival = self.wait(ticket);
                 return std::make_tuple(pair_of(arrival.failure), arrival.seconds);
             },
             nb::arg("ticket"))
        .def("close", &RangeQueue::close, nb::call_guard<nb::gil_scoped_release>());

    m.def("pack_pass", &pack, nb::arg("path"), nb::kw_only(), nb::arg("data_offset"), nb::arg("num_rows"),
          nb::arg("row_bytes"), nb::arg("files"), nb::arg("chunks"), nb::arg("ids"), nb::arg("partition_rows"),
          nb::arg("buffers"), nb::arg("write_bytes"), nb::arg("hold"), nb::arg("threads"), nb::arg("depth"), nb::arg("request_bytes"), nb::arg("mode"));
    m.def("partition_buffer_bytes", &partition_buffer_bytes, nb::arg("partition_rows"), nb::arg("row_bytes"));
    m.def(
        "ascending",
        [](const Ids& ids) {
            Ascending result;
            {
                const nb::gil_scoped_release release;
                result = ascending(span_of(ids));
            }
            return nb::make_tuple(array_of(std::move(result.sorted)), array_of(std::move(result.from)));
        },
        nb::arg("ids"));
    m.def(
        "minhash_order",
        [](const Ids& ids, const Ids& offsets, std::uint32_t hashes, std::uint64_t seed) {
            std::vector<std::int64_t> result;
            {
                const nb::gil_scoped_release release;
                result = minhash_order(span_of(ids), span_of(offsets), hashes, seed);
            }
            return to_numpy(std::move(result));
        },
        nb::arg("ids"), nb::arg("offsets"), nb::arg("hashes"), nb::arg("seed"));
    m.def("minhash_bytes", &minhash_bytes, nb::arg("num_ids"), nb::arg("num_lists"), nb::arg("hashes"));
    m.def(
        "plan_reads",
        [](const Ids& ids, std::uint64_t data_offset, std::uint64_t num_rows, std::uint64_t row_bytes,
           std::uint64_t file_bytes, std::uint32_t block_bytes, bool merge, std::uint64_t max_request_bytes,
           std::uint64_t merge_gap_bytes) {
            ReadPlan plan;
            {
                const nb::gil_scoped_release release;
                const std::uint64_t longest = std::clamp<std::uint64_t>(max_request_bytes / block_bytes * block_bytes, block_bytes, 1U << 30);
                plan.build(span_of(ids), {data_offset, num_rows, row_bytes, file_bytes, block_bytes},
                           {merge, longest, merge_gap_bytes});
            }
            return dict_of(plan.counts());
        },
        nb::arg("ids"), nb::kw_only(), nb::arg("data_offset"), nb::arg("num_rows"), nb::arg("row_bytes"),
        nb::arg("file_bytes"), nb::arg("block_bytes"), nb::arg("merge"), nb::arg("max_request_bytes"),
        nb::arg("merge_gap_bytes"));
    // XXH3-64 of bytes whose length is a positive multiple of 1024.
    m.def(
        "xxh3",
        [](const ConstBytes& data) {
            if (data.size() == 0 || data.size() % Xxh3Stream::block_bytes != 0) {
                throw std::invalid_argument("the length is not a positive multiple of 1024");
            }
            const nb::gil_scoped_release release;
            Xxh3Stream digest(data.size());
            digest.update(reinterpret_cast<const std::byte*>(data.data()), data.size());
            return digest.value();
        },
        nb::arg("data"));
}

}  // namespace outcore
