// Python bindings of systems._native: one bind_* function for each part, defined beside the part.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace outcore {
void bind_reader(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_feature_buffer(nb::module_& m);
void bind_segment_pool(nb::module_& m);
void bind_changeset(nb::module_& m);
void bind_policies(nb::module_& m);
void bind_packing(nb::module_& m);
void bind_ranking(nb::module_& m);
void bind_aggregate(nb::module_& m);
void bind_reorder(nb::module_& m);
void bind_partition(nb::module_& m);
void bind_edge_buckets(nb::module_& m);
void bind_external(nb::module_& m);
}  // namespace outcore

NB_MODULE(_native, m) {
    m.doc() = "Direct-I/O reader, gather, page cache, feature buffer, Belady changesets, cache policies, packing, rankings.";
    outcore::bind_reader(m);
    outcore::bind_memory(m);
    outcore::bind_feature_buffer(m);
    outcore::bind_segment_pool(m);
    outcore::bind_changeset(m);
    outcore::bind_policies(m);
    outcore::bind_packing(m);
    outcore::bind_ranking(m);
    outcore::bind_aggregate(m);
    outcore::bind_reorder(m);
    outcore::bind_partition(m);
    outcore::bind_edge_buckets(m);
    outcore::bind_external(m);
}
