// Blocks of out-of-core sampling: relabels a hop's sources once all of them have been read, and lays mini-batches out.
#include "base/refuse.hpp"
#include "sampling/external_sampler.hpp"

namespace outcore {
namespace {

// Header sizes in 8-byte words: of a mini-batch, then of each of its blocks, before all arrays (batch_store.py).
constexpr size_t batch_fields = 8, block_fields = 4;

}  // namespace

// Builds the hop's block: edges in the order of destinations, new nodes by ascending id after the others.
void ExternalSampler::relabel(Part& part, Labels& labels) {
    Block hop;
    const size_t count = part.nodes.size(), edges = part.arrived.size();
    hop.indptr.resize(count + 1);
    hop.indices.resize(edges);
    const size_t slots = std::bit_ceil(std::max<size_t>(16, 2 * (count + std::min<size_t>(edges, num_nodes_))));
    labels.table.assign(slots, {no_node, 0});
    const int shift = 32 - static_cast<int>(std::bit_width(slots - 1));
    for (u32 i = 0; i < count; ++i) labels.table[labels.find(part.nodes[i], shift)] = {part.nodes[i], i};
    labels.fresh.clear();
    constexpr size_t ahead = 16;
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
        hop.indptr[i] = static_cast<u32>(at);
        const u32* sources = part.arrived.data() + part.start[i];
        const u32 kept = part.count[i];
        if (i + 2 < count) {
            const u32* later = part.arrived.data() + part.start[i + 2];
            for (size_t k = 0; k < std::min<size_t>(part.count[i + 2], ahead); ++k)
                __builtin_prefetch(&labels.table[Labels::hash(later[k]) >> shift]);
        }
        for (u32 k = 0; k < kept; ++k) {
            const u32 entry = labels.find(sources[k], shift);
            if (labels.table[entry].id == no_node) {
                labels.table[entry].id = sources[k];
                labels.fresh.push_back(u64{sources[k]} << 32 | entry);
            }
            hop.indices[at++] = static_cast<i32>(entry);
        }
    }
    hop.indptr[count] = static_cast<u32>(at);
    radix_sort(labels.fresh, labels.other, num_nodes_, [](u64 value) { return value >> 32; });
    part.nodes.reserve(count + labels.fresh.size());
    for (const auto value : labels.fresh) {
        labels.table[static_cast<u32>(value)].position = static_cast<u32>(part.nodes.size());
        part.nodes.push_back(static_cast<u32>(value >> 32));
    }
    for (auto& entry : hop.indices) entry = static_cast<i32>(labels.table[static_cast<u32>(entry)].position);
    hop.num_src = static_cast<i64>(part.nodes.size());
    if (part.nodes.size() > count)
        part.runs.push_back({static_cast<u32>(count), static_cast<u32>(part.nodes.size()), 0, 0});
    part.hops.push_back(std::move(hop));
    // Only nodes and blocks are needed until the next pass (assigning {} would keep the memory).
    for (auto* list : {&part.start, &part.count, &part.arrived}) std::vector<u32>().swap(*list);
}

LaidOut ExternalSampler::laid_out(size_t i, u64 labels) const {
    const Part& part = finished_.at(i);
    if (part.hops.size() < options_.fanout.size())
        throw std::invalid_argument("this mini-batch's last block is not built yet");
    LaidOut made{0, 4 * part.nodes.size(), 8 * (batch_fields + block_fields * part.hops.size() + labels),
                 part.nodes.size()};
    for (const auto& hop : part.hops)
        made.body_bytes += up_to(4 * hop.indptr.size(), 8) + up_to(4 * hop.indices.size(), 8);
    made.bytes = padded(up_to(made.head_bytes, 8) + made.body_bytes);
    return made;
}

std::vector<LaidOut> ExternalSampler::lay_out(size_t begin, Ids labels, Ids offsets, std::span<std::byte> to,
                                              std::optional<std::span<u32>> nodes) {
    check_offsets(offsets, labels.size(), "the seed nodes' labels");
    if (offsets.size() != finished_.size() + 1)
        throw std::invalid_argument("the labels are not those of the finished group's seed nodes");
    if (begin >= finished_.size() || finished_[begin].taken)
        throw std::invalid_argument("there is no such mini-batch, or it was laid out before");
    check_stop();
    need_team();
    std::vector<LaidOut> made;
    std::atomic<size_t> claimed{begin};
    std::mutex mutex;
    std::condition_variable moved;
    size_t next = begin;  // mini-batch that gets space next: in order, though several are relabelled at a time
    bool full = false;
    const auto work = [&](Labels& working) {
        for (size_t i; (i = claimed.fetch_add(1)) < finished_.size();) {
            Part& part = finished_[i];
            if (part.hops.size() < options_.fanout.size()) relabel(part, working);  // the last hop's block
            const auto seeds =
                labels.subspan(static_cast<size_t>(offsets[i]), static_cast<size_t>(offsets[i + 1] - offsets[i]));
            const LaidOut size = laid_out(i, seeds.size());
            std::byte* place = nullptr;
            {
                std::unique_lock lock(mutex);
                moved.wait(lock, [&] { return full || next == i; });
                full = full || size.bytes > to.size() || (nodes && size.nodes > nodes->size());
                moved.notify_all();
                if (full) return;
                ++next;
                place = to.data();
                to = to.subspan(size.bytes);
                made.push_back(size);
                if (nodes) {
                    std::copy(part.nodes.begin(), part.nodes.end(), nodes->data());
                    nodes = nodes->subspan(size.nodes);
                }
            }
            put(part, seeds, place, size.bytes);
            part = Part{};
            part.taken = true;
        }
    };
    team_->run([&](int member) {
        try {
            work(labels_[static_cast<size_t>(member)]);
        } catch (...) {  // else the other threads would wait for this mini-batch's turn
            const std::lock_guard lock(mutex);
            full = true;
            moved.notify_all();
            throw;
        }
    });
    return made;
}

// Writes the mini-batch in the layout that `laid_out` sizes.
void ExternalSampler::put(const Part& part, Ids labels, std::byte* to, u64 bytes) {
    std::byte* const end = to + bytes;
    const auto copy = [&](const void* from, size_t size) {
        std::memcpy(to, from, size);
        std::memset(to + size, 0, up_to(size, 8) - size);
        to += up_to(size, 8);
    };
    i64 edges = 0;
    for (const auto& hop : part.hops) edges += hop.indptr.back();
    copy(part.nodes.data(), 4 * part.nodes.size());
    const std::array<i64, batch_fields> fields{static_cast<i64>(part.epoch),
                                               static_cast<i64>(part.number),
                                               static_cast<i64>(labels.size()),
                                               edges,
                                               part.list_reads,
                                               0,
                                               4,
                                               static_cast<i64>(part.hops.size())};
    copy(fields.data(), sizeof(fields));
    for (auto hop = part.hops.rbegin(); hop != part.hops.rend(); ++hop) {
        const std::array<i64, block_fields> shape{hop->num_src, static_cast<i64>(hop->indptr.size()) - 1,
                                                  hop->indptr.back(), 4};
        copy(shape.data(), sizeof(shape));
    }
    copy(labels.data(), labels.size_bytes());
    for (auto hop = part.hops.rbegin(); hop != part.hops.rend(); ++hop) {
        copy(hop->indptr.data(), 4 * hop->indptr.size());
        copy(hop->indices.data(), 4 * hop->indices.size());
    }
    std::memset(to, 0, static_cast<size_t>(end - to));
}

}  // namespace outcore
