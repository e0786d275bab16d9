// Python bindings of systems._native: a bind_* function for each room.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace outcore {
void bind_read(nb::module_& m);
void bind_cache(nb::module_& m);
void bind_rank(nb::module_& m);
void bind_store(nb::module_& m);
void bind_buckets(nb::module_& m);
void bind_external(nb::module_& m);
void bind_aggregate(nb::module_& m);
}  // namespace outcore

NB_MODULE(_native, m) {
    m.doc() =
        "Direct-I/O reader, gather, page cache, feature buffer, Belady changesets, cache policies, packing, rankings.";
    for (const auto bind : {outcore::bind_read, outcore::bind_cache, outcore::bind_rank, outcore::bind_store,
                            outcore::bind_buckets, outcore::bind_external, outcore::bind_aggregate})
        bind(m);
}
