// Samples many mini-batches at once out of core: in one pass over the files of the graph, in the order of nodes, every
// mini-batch draws the neighbours of its nodes for its next hop. Groups of mini-batches may be begun one after the other,
// so that a pass serves the last hop of one, the hop before of the next, and so on. Draws are keyed by name (draws.hpp), so
// the mini-batches are those that the in-memory sampler gives. (Sort, scan, distribute: Aggarwal and Vitter 1988.)
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aligned_memory.hpp"
#include "draw_lanes.hpp"
#include "piece_file.hpp"
#include "team.hpp"

namespace outcore {

// One array of the graph as a file: item i lies at offset + i * item_bytes.
struct GraphFile {
    std::string path;
    std::uint64_t offset;
    std::uint32_t item_bytes;
    std::uint64_t items;

    std::uint64_t end() const { return offset + items * item_bytes; }
};

struct ExternalOptions {
    std::vector<std::int64_t> fanout;  // next to the seed nodes first; < 0 takes all
    std::uint64_t seed = 0;
    bool replace = false;
    std::uint64_t gap_bytes = 0;         // unwanted bytes that are read rather than begin another request
    std::uint32_t piece_bytes = 1 << 19;  // of the files; whole pages
    std::uint32_t pieces = 8;            // in flight for each file
    std::uint32_t depth = 32;            // requests in flight for each file
    std::uint32_t group_nodes = 8192;    // destinations that are drawn for before their edges are read, about
    std::uint32_t threads = 1;           // that draw and relabel, the caller among them
    bool want_ring = true;
    bool need_ring = false;
};

// Where a read failed; code 0: the file ended.
struct ExternalFailure {
    int code;
    bool in_indices;
    std::uint64_t offset;
};

struct ExternalHop {
    std::vector<std::int64_t> indptr;
    std::vector<std::int32_t> indices;
    std::int64_t num_src = 0, num_dst = 0;
};

// A mini-batch as it lies in a file of mini-batches (systems/engine/batch_store.py): node ids, then the body at a multiple
// of 8, then zeros up to a page.
struct LaidOut {
    std::uint64_t bytes, head_bytes, body_bytes, nodes;
};

class ExternalSampler {
public:
    // Throws std::invalid_argument, std::system_error.
    ExternalSampler(const GraphFile& indptr, const GraphFile& indices, ExternalOptions options);
    ~ExternalSampler();

    // Begins a group of mini-batches; `numbers` name them. Throws std::invalid_argument (seeds).
    void begin(std::uint64_t epoch, std::span<const std::int64_t> numbers, std::span<const std::int64_t> seeds,
               std::span<const std::int64_t> offsets);
    // One pass over the graph, a hop for each group begun. After a failure all groups are forgotten.
    // Throws std::out_of_range (a damaged graph), std::runtime_error (stopped), std::invalid_argument (a group is finished).
    std::optional<ExternalFailure> pass();
    // The group begun first, which has had a pass for each hop, is what `lay_out` hands out from now on.
    void finish();
    // Drops all groups that are under way.
    void forget();
    // One group by itself, from begin to finish.
    std::optional<ExternalFailure> sample(std::uint64_t epoch, std::span<const std::int64_t> numbers,
                                          std::span<const std::int64_t> seeds, std::span<const std::int64_t> offsets);
    // Relabels mini-batches of the group that was finished from `begin` on and lays them out one behind the other in `to`, their
    // nodes in `nodes` if they are wanted, until one has no room; each once. `labels` are those of the group's seed nodes.
    // Neither in two threads nor during a pass. Throws std::runtime_error (stopped).
    std::vector<LaidOut> lay_out(std::size_t begin, std::span<const std::int64_t> labels, std::span<const std::int64_t> offsets,
                                 std::span<std::byte> to, std::optional<std::span<std::uint32_t>> nodes);
    // What the next one takes, after `lay_out` had no room for it.
    LaidOut laid_out(std::size_t i, std::uint64_t labels) const;
    // Has a pass or a `lay_out` under way end soon.
    void stop();

    const PieceReads& reads() const { return reads_; }
    std::uint64_t memory_bytes() const;  // beside the mini-batches

private:
    struct Part;
    struct Labels;  // working memory of relabelling
    struct Want {
        std::uint32_t at;     // byte in the piece
        std::uint32_t part;
        std::uint32_t place;  // among the part's edges
    };
    // What the mini-batches of one thread want of a piece.
    struct Share {
        std::vector<Want> wants;
        std::vector<std::uint64_t> pages;  // a bit for each page that is wanted
    };
    struct Bucket {
        std::vector<Share> shares;  // one a thread
        std::size_t alone = 0;      // noted by one thread for all, since it was empty

        std::size_t size() const;
    };
    // One thread's mini-batches, and what it draws with.
    struct Drawing {
        std::size_t begin = 0, end = 0;
        LaneDrawer drawer;
        std::vector<std::uint64_t> positions;
    };
    struct Flight;

    // As many mini-batches one after the other as were begun together, and how many hops they have drawn.
    struct Begun {
        std::size_t parts;
        std::uint32_t hops = 0;
    };

    void run_pass();
    void divide();  // mini-batches among threads
    void draw_range(std::uint64_t last, std::uint64_t held, std::uint64_t indptr_base, const std::byte* pointers);
    void draw_part(std::size_t drawing, std::uint32_t part, std::uint64_t last, std::uint64_t indptr_base,
                   const std::byte* pointers);
    void want(std::size_t drawing, std::uint64_t edge, std::uint32_t part, std::uint32_t place);
    // Buckets for all that may be wanted below byte `reach` of the indices.
    void make_room(std::uint64_t reach);
    Bucket empty_bucket();
    std::int64_t list_end(std::uint64_t node, std::uint64_t indptr_base, const std::byte* pointers, std::int64_t& start) const;
    void ship(std::uint64_t below);
    void ship_front();
    void send(Bucket bucket, std::uint64_t base);
    void land();
    void settle(Part& part, Labels& labels);
    void settle_last(Part& part);
    static void put(const Part& part, std::span<const std::int64_t> labels, std::byte* to, std::uint64_t bytes);
    void check_stop() const;
    std::unique_ptr<Labels> labels();
    void give_back(std::unique_ptr<Labels> labels);

    GraphFile indptr_, indices_;
    ExternalOptions options_;
    std::uint64_t num_nodes_;
    std::vector<Part> parts_;         // under way, group after group
    std::deque<Begun> begun_;
    std::vector<Part> finished_;
    std::unique_ptr<PieceFile> pointer_file_, index_file_;
    std::deque<Bucket> buckets_;      // of successive pieces of `indices`, from front_ on
    std::vector<Bucket> spare_;
    std::uint64_t front_ = 0;         // piece number of the first bucket
    std::uint64_t reach_ = 0;         // byte of `indices` below which nothing more will be wanted
    std::deque<Flight> flights_;
    std::vector<Drawing> drawings_;
    bool whole_lists_ = false;        // some mini-batch takes all neighbours in this pass
    bool alone_ = false;              // one thread notes for all mini-batches
    std::unique_ptr<Team> team_;
    PieceReads reads_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Labels>> idle_;
    std::atomic<bool> stop_{false};
};

}  // namespace outcore
