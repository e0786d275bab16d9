// Sampler of many mini-batches at once out of core (sort, scan, distribute: Aggarwal and Vitter 1988). One pass over
// the graph's files, in the order of nodes, draws the next hop of every mini-batch. Groups of mini-batches may be begun
// one after the other: a pass then serves the last hop of one group, the hop before it of the next, and so on. Draws
// are keyed by name (draws.hpp), so the mini-batches equal those of the in-memory sampler.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/draws.hpp"
#include "base/radix.hpp"
#include "io/piece_file.hpp"

namespace outcore {

// Array of the graph in a file: item i lies at offset + i * item_bytes.
struct GraphFile {
    std::string path;
    u64 offset;
    u32 item_bytes;
    u64 items;

    u64 end() const { return offset + items * item_bytes; }
};

struct ExternalOptions {
    std::vector<i64> fanout;  // by hop from the seed nodes; < 0 takes all neighbours
    u64 seed = 0;
    bool replace = false;
    u64 gap_bytes = 0;          // longest gap of unwanted bytes that is read to save a request
    u32 piece_bytes = 1 << 19;  // piece of a file read at a time; whole pages
    u32 pieces = 8;             // pieces in flight for each file
    u32 depth = 32;             // requests in flight for each file
    u32 group_nodes = 8192;     // destinations drawn for before their edges are read, roughly
    u32 threads = 1;            // for drawing and relabelling, the caller included
    IoChoice choice;
    bool whole = false;  // read each piece with a wanted page as a whole, and once a pass as far as `pieces` suffice
};

// Failed read: errno (0: the file ended early), file and offset.
struct ExternalFailure {
    int code;
    bool in_indices;
    u64 offset;
};

// Sizes of a mini-batch on disk (engine/store/batch_store.py): node ids, body at a multiple of 8, zeros to a page.
struct LaidOut {
    u64 bytes, head_bytes, body_bytes, nodes;
};

class ExternalSampler {
public:
    // Throws std::invalid_argument, std::system_error.
    ExternalSampler(const GraphFile& indptr, const GraphFile& indices, ExternalOptions options);

    // Begins a group of mini-batches with these `numbers`. Throws std::invalid_argument for invalid seeds or offsets.
    void begin(u64 epoch, Ids numbers, Ids seeds, Ids offsets);
    // Passes over the graph once and draws one hop of each group begun. After a failure all groups are dropped.
    // Throws std::out_of_range (damaged graph), std::runtime_error (stopped), std::invalid_argument (no hop left).
    std::optional<ExternalFailure> pass();
    // Gives the group begun first to `lay_out`. Throws std::invalid_argument unless it has had a pass for each hop.
    void finish();
    // Drops all groups, the finished one included.
    void forget();
    // Relabels mini-batches of the finished group from `begin` on and lays each out once, one after the other in `to`,
    // and their nodes in `nodes` if given, until one does not fit. `labels` are the labels of the group's seed nodes.
    // Call it neither in two threads nor during a pass. Throws std::invalid_argument, std::runtime_error (stopped).
    std::vector<LaidOut> lay_out(size_t begin, Ids labels, Ids offsets, std::span<std::byte> to,
                                 std::optional<std::span<u32>> nodes);
    // Returns the sizes of mini-batch i, the first that `lay_out` had no space for. Others: std::invalid_argument.
    LaidOut laid_out(size_t i, u64 labels) const;
    // Ends a pass under way soon; later calls of `pass` and `lay_out` throw.
    void stop() { stop_ = true; }

    const RequestCounts& reads() const { return reads_; }
    // Returns the bytes of the read buffers, without the mini-batches.
    u64 memory_bytes() const { return pointer_file_ == nullptr ? 0 : pointer_file_->bytes() + index_file_->bytes(); }

private:
    static constexpr u32 no_node = UINT32_MAX;  // invalid node id

    struct Block {
        std::vector<u32> indptr;
        std::vector<i32> indices;
        i64 num_src = 0;
    };
    // Mini-batch between two hops.
    struct Part {
        struct Run {
            u32 begin, end;
            u32 marked, drawn;  // ends of the nodes requested and of the nodes drawn for
        };

        u64 epoch = 0, number = 0;
        std::vector<u32> nodes;
        std::vector<u32> seed_order;    // positions of the seed nodes by ascending id
        std::vector<Run> runs;          // ascending runs of nodes; the first is indexed through seed_order
        std::vector<u32> start, count;  // of each destination's edges in `arrived`
        std::vector<u32> arrived;       // source ids of the drawn edges
        std::vector<Block> hops;        // built so far; the next hop to draw follows them
        i64 list_reads = 0;
        bool taken = false;  // laid out by lay_out

        u32 position(size_t run, u32 i) const { return run == 0 ? seed_order[i] : i; }
        u32 node(size_t run, u32 i) const { return nodes[position(run, i)]; }

        // Returns the first i of the run from `from` on whose node is `bound` or more.
        u32 until(size_t run, u32 from, u64 bound) const {
            u32 low = from, high = runs[run].end;
            for (u32 step = 1; low + step < high; step *= 2) {  // gallop: the result is usually near
                if (node(run, low + step) >= bound) {
                    high = low + step;
                    break;
                }
                low += step;
            }
            while (low < high) {
                const u32 middle = low + (high - low) / 2;
                if (node(run, middle) < bound) low = middle + 1;
                else high = middle;
            }
            return low;
        }
    };
    // Working memory of relabelling: a hash table from ids to positions.
    struct Labels {
        struct Entry {
            u32 id, position;
        };
        std::vector<Entry> table;
        std::vector<u64> fresh, other;  // id << 32 | entry of `table`; `other` is scratch

        static u32 hash(u32 id) { return id * 0x9E3779B1U; }

        // Returns the entry of an id, or the empty entry (id `no_node`) for a new one.
        u32 find(u32 id, int shift) const {
            const auto mask = static_cast<u32>(table.size() - 1);
            u32 at = hash(id) >> shift;
            while (table[at].id != id && table[at].id != no_node) at = (at + 1) & mask;
            return at;
        }
    };
    struct Want {
        u32 at;  // byte offset in the piece
        u32 part;
        u32 place;  // index among the part's edges
    };
    // Wanted edges in a piece, for the mini-batches of one thread.
    struct Share {
        std::vector<Want> wants;
        std::vector<u64> pages;  // one bit per page, set for wanted pages
    };
    struct Bucket {
        std::vector<Share> shares;  // one per thread
        size_t alone = 0;           // wants added under `alone_` since the bucket was empty

        size_t size() const {
            size_t sum = 0;
            for (const Share& share : shares) sum += share.wants.size();
            return sum;
        }
    };
    // Mini-batches [begin, end) of one thread, and its drawing memory.
    struct Drawing {
        size_t begin = 0, end = 0;
        LaneDrawer drawer;
        std::vector<u64> positions;
    };
    struct Flight {
        Bucket bucket;
        PieceFile::Read read;
        bool keep;  // more edges of the piece may be wanted in this pass
    };
    // Group of `parts` consecutive mini-batches begun together, and the number of hops they have drawn.
    struct Begun {
        size_t parts;
        u32 hops = 0;
    };

    void open_files();
    void run_pass();
    void divide();  // assigns mini-batches to threads
    void draw_range(u64 last, u64 held, u64 indptr_base, const std::byte* pointers);
    void draw_part(size_t drawing, u32 part, u64 last, u64 indptr_base, const std::byte* pointers);
    void want(size_t drawing, u64 edge, u32 part, u32 place);
    // Adds the missing buckets for edges below byte `reach` of the indices.
    void make_room(u64 reach);
    Bucket empty_bucket();
    i64 list_end(u64 node, u64 indptr_base, const std::byte* pointers, i64& start) const;
    void submit(u64 below);
    void submit_front();
    // Reads the bucket's piece of `indices` and gives out its edges; `last`: no more of them are wanted in this pass.
    void send(Bucket bucket, u64 base, bool last);
    void complete();
    void hand_out(const Bucket& bucket, const PieceFile::Read& read);
    void recycle(Bucket bucket);
    bool in_memory(u64 base) const;  // whether the piece is kept, or being read
    void drop_kept(u64 base);
    void relabel(Part& part, Labels& labels);
    static void put(const Part& part, Ids labels, std::byte* to, u64 bytes);
    void check_stop() const;
    void need_team();

    GraphFile indptr_, indices_;
    ExternalOptions options_;
    u64 num_nodes_;
    std::vector<Part> parts_;  // of the groups begun, group after group
    std::deque<Begun> begun_;
    std::vector<Part> finished_;
    std::unique_ptr<PieceFile> pointer_file_, index_file_;
    std::deque<Bucket> buckets_;  // of successive pieces of `indices`, from front_ on
    std::vector<Bucket> spare_;
    u64 front_ = 0;  // piece number of the first bucket
    u64 reach_ = 0;  // byte of `indices` below which no more edges will be wanted
    std::deque<Flight> flights_;
    std::map<u64, PieceFile::Read> kept_;  // with `whole`: pieces in memory, by their first byte
    std::vector<Drawing> drawings_;
    bool whole_lists_ = false;  // some mini-batch takes all neighbours in this pass
    bool alone_ = false;        // one thread draws for all mini-batches
    size_t most_wants_;         // wanted edges of one piece before it is read
    std::unique_ptr<Team> team_;
    std::vector<Labels> labels_;  // by member of the team
    RequestCounts reads_;
    std::atomic<bool> stop_{false};
};

}  // namespace outcore
