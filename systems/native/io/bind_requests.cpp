// Bindings of the latency logs, which `systems/engine/io/latency.py` cuts into epochs, and of the request log.
#include "base/arrays.hpp"
#include "io/latency.hpp"
#include "io/request_log.hpp"

namespace outcore {

void bind_requests(nb::module_& m) {
    m.def(
        "latency_counts", &LatencyLog::summed, released(),
        "Returns the requests of this process so far, modulo 2^32, by direction (read, write), size class and bucket.");
    m.def(
        "latency_bounds_ns",
        [] {
            std::vector<u64> bounds;
            for (u32 bucket = 0; bucket < LatencyBuckets::count; ++bucket)
                bounds.push_back(LatencyBuckets::longest(bucket));
            return bounds;
        },
        "Returns the longest latency of each bucket in nanoseconds.");
    m.def("start_request_log", &RequestLog::start);
    m.def(
        "take_request_log",
        [] {
            nb::list streams;
            for (auto& stream : RequestLog::take())
                streams.append(nb::make_tuple(stream.path, stream.depth, std::move(stream.requests)));
            return streams;
        },
        nb::sig("def take_request_log() -> list[tuple[str, int, numpy.typing.NDArray[numpy.uint64]]]"),
        "Returns (path, depth, requests) of each backend; a request is a triple of offset, bytes, and 1 for a write.");
    m.def("measure_latency", &LatencyLog::enable, "on"_a);
}

}  // namespace outcore
