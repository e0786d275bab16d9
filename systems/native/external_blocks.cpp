// Blocks of out-of-core sampling: a hop's sources get their places in the mini-batch, when all of them have arrived.
#include <algorithm>
#include <bit>
#include <stdexcept>

#include "external_parts.hpp"

namespace outcore {

// The hop's block: edges in the order of destinations, new nodes by ascending id behind the others.
void ExternalSampler::settle(Part& part, Labels& labels) {
    ExternalHop hop;
    const std::size_t count = part.nodes.size(), edges = part.arrived.size();
    hop.num_dst = static_cast<std::int64_t>(count);
    hop.indptr.resize(count + 1);
    hop.indices.resize(edges);
    const std::size_t slots = std::bit_ceil(std::max<std::size_t>(16, 2 * (count + std::min<std::size_t>(edges, num_nodes_))));
    labels.table.assign(slots, {nobody, 0});
    const int shift = 32 - static_cast<int>(std::bit_width(slots - 1));
    for (std::uint32_t i = 0; i < count; ++i) labels.table[labels.find(part.nodes[i], shift)] = {part.nodes[i], i};
    labels.fresh.clear();
    constexpr std::size_t ahead = 16;
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
        hop.indptr[i] = static_cast<std::int64_t>(at);
        const std::uint32_t* sources = part.arrived.data() + part.start[i];
        const std::uint32_t kept = part.count[i];
        if (i + 2 < count) {
            const std::uint32_t* later = part.arrived.data() + part.start[i + 2];
            for (std::size_t k = 0; k < std::min<std::size_t>(part.count[i + 2], ahead); ++k)
                __builtin_prefetch(&labels.table[Labels::hash(later[k]) >> shift]);
        }
        for (std::uint32_t k = 0; k < kept; ++k) {
            const std::uint32_t entry = labels.find(sources[k], shift);
            if (labels.table[entry].id == nobody) {
                labels.table[entry].id = sources[k];
                labels.fresh.push_back(std::uint64_t{sources[k]} << 32 | entry);
            }
            hop.indices[at++] = static_cast<std::int32_t>(entry);
        }
    }
    hop.indptr[count] = static_cast<std::int64_t>(at);
    labels.sort(num_nodes_);
    part.nodes.reserve(count + labels.fresh.size());
    for (const auto value : labels.fresh) {
        labels.table[static_cast<std::uint32_t>(value)].position = static_cast<std::uint32_t>(part.nodes.size());
        part.nodes.push_back(static_cast<std::uint32_t>(value >> 32));
    }
    for (auto& entry : hop.indices) entry = static_cast<std::int32_t>(labels.table[static_cast<std::uint32_t>(entry)].position);
    const auto total = static_cast<std::uint32_t>(part.nodes.size());
    hop.num_src = total;
    if (total > count) part.runs.push_back({static_cast<std::uint32_t>(count), total, 0, 0});
    part.hops.push_back(std::move(hop));
}

ExternalBatch ExternalSampler::take(std::size_t i) {
    if (i >= finished_.size() || finished_[i].taken) throw std::invalid_argument("this mini-batch is not there");
    Part& part = finished_[i];
    part.taken = true;
    auto working = labels();
    settle(part, *working);
    give_back(std::move(working));
    ExternalBatch batch;
    batch.nodes = std::move(part.nodes);
    batch.hops = std::move(part.hops);
    batch.list_reads = part.list_reads;
    for (const auto& hop : batch.hops) batch.edge_reads += hop.indptr.back();
    part = Part{};
    part.taken = true;
    return batch;
}

std::unique_ptr<ExternalSampler::Labels> ExternalSampler::labels() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Labels>();
    auto found = std::move(idle_.back());
    idle_.pop_back();
    return found;
}

void ExternalSampler::give_back(std::unique_ptr<Labels> labels) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(labels));
}

}  // namespace outcore
