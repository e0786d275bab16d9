// Bindings of batched packing, MinHash and the range queue as plain tuples; `systems/engine/store/packing.py` adds the types.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <list>
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

// Range queue with the memory of all ranges whose tickets have not been waited for.
class HeldQueue {
public:
    HeldQueue(const std::string& path, const RangeQueueOptions& options) : queue_(path, options) {}

    RangeQueue* operator->() { return &queue_; }
    const RangeQueue* operator->() const { return &queue_; }

    RangeQueue::Ticket submit(std::uint64_t offset, std::uint64_t need, const FlatBytes& out) {
        held_.push_back({0, out});  // before the queue writes to it
        try {
            return held_.back().ticket = queue_.submit(offset, need, bytes_of(out));
        } catch (...) {
            held_.pop_back();
            throw;
        }
    }

    // `wait` and `close` are called with the GIL and release it while they wait.
    RangeQueue::Arrival wait(RangeQueue::Ticket ticket) {
        RangeQueue::Arrival arrival;
        {
            const nb::gil_scoped_release release;
            arrival = queue_.wait(ticket);
        }
        held_.remove_if([&](const Held& one) { return one.ticket == ticket; });
        return arrival;
    }
    void close() {
        {
            const nb::gil_scoped_release release;
            queue_.close();
        }
        held_.clear();
    }

private:
    struct Held {
        RangeQueue::Ticket ticket;
        FlatBytes memory;
    };
    std::list<Held> held_;
    RangeQueue queue_;  // last member: destroyed before the memory
};

RangeQueueOptions queue_options(std::uint32_t depth, std::uint32_t request_bytes, const std::string& mode) {
    return {depth, request_bytes, mode != "pread", mode == "io_uring"};
}

nb::tuple pack(const std::string& path, std::uint64_t data_offset, std::uint64_t num_rows, std::uint64_t row_bytes,
               const std::vector<std::string>& files, const Chunks& chunks, const In<std::uint32_t>& ids,
               std::uint64_t partition_rows, std::uint32_t buffers, std::uint64_t write_bytes, bool hold, std::uint32_t threads, std::uint32_t depth,
               std::uint32_t request_bytes, const std::string& mode) {
    if (chunks.shape(1) != 4) throw std::invalid_argument("chunks have four columns: file, offset, begin, end");
    std::vector<PackChunk> list(chunks.shape(0));
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::int64_t* row = chunks.data() + 4 * i;
        if (row[0] < 0 || static_cast<std::size_t>(row[0]) >= files.size()) throw std::invalid_argument("a chunk lies outside its files");
        list[i] = {static_cast<std::uint32_t>(row[0]), static_cast<std::uint64_t>(row[1]),
                   static_cast<std::uint64_t>(row[2]), static_cast<std::uint64_t>(row[3])};
    }
    PackResult result;
    try {
        const nb::gil_scoped_release release;
        result = pack_pass({path, data_offset, num_rows, row_bytes}, files, list, span_of(ids),
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
    return nb::make_tuple(counts, to_numpy(std::move(result.digests)), failure);
}

}  // namespace

void bind_packing(nb::module_& m) {
    nb::class_<HeldQueue>(m, "RangeQueue")
        .def(
            "__init__",
            [](HeldQueue* self, const std::string& path, std::uint32_t depth, std::uint32_t request_bytes,
               const std::string& mode) {
                try {
                    new (self) HeldQueue(path, queue_options(depth, request_bytes, mode));
                } catch (const std::system_error& error) {
                    raise_os_error(error, path);
                }
            },
            nb::arg("path"), nb::kw_only(), nb::arg("depth"), nb::arg("request_bytes"), nb::arg("mode"))
        .def_prop_ro("mode", [](const HeldQueue& self) { return self->mode(); })
        .def_prop_ro("block_bytes", [](const HeldQueue& self) { return self->block_bytes(); })
        // Holds the memory of `out` until its ticket is waited for or the queue is closed.
        .def("submit", &HeldQueue::submit, nb::arg("offset"), nb::arg("need"), nb::arg("out"))
        .def("wait",
             [](HeldQueue& self, std::uint64_t ticket) {
                 const RangeQueue::Arrival arrival = self.wait(ticket);
                 return std::make_tuple(pair_of(arrival.failure), arrival.seconds);
             },
             nb::arg("ticket"))
        .def("close", &HeldQueue::close);

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
            return nb::make_tuple(to_numpy(std::move(result.sorted)), to_numpy(std::move(result.from)));
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
            check_table(data_offset, num_rows, row_bytes);
            if (block_bytes == 0) throw std::invalid_argument("block_bytes must be positive");
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
        [](const In<std::uint8_t>& data) {
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
