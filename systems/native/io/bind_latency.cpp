// Bindings of the latency logs; `systems/engine/io/latency.py` cuts them into epochs.
#include "base/arrays.hpp"
#include "io/latency.hpp"

namespace outcore {

void bind_latency(nb::module_& m) {
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
    m.def("measure_latency", &LatencyLog::enable, "on"_a);
}

}  // namespace outcore
