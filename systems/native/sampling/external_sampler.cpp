// A pass walks `indptr` in pieces, draws positions for the nodes that mini-batches hold, and notes each drawn edge in
// the bucket of its piece of `indices`. Once no more edges can join a bucket, the wanted pages of its piece are read
// and the neighbours copied to their mini-batches. Nothing is sorted: a mini-batch's nodes are a few ascending runs.
#include "sampling/external_sampler.hpp"

#include <iterator>

#include "base/refuse.hpp"

namespace outcore {
namespace {

constexpr u32 most_piece_bytes = 1U << 29;
constexpr u64 most_file_bytes = u64{1} << 61;
constexpr size_t most_wants = 8192;  // wanted edges of one piece before it is read
constexpr size_t want_share = 16;    // of a piece that is read once, one wanted edge for so many of its bytes
// Below this number of nodes, waking another thread takes longer than its work.
constexpr u64 least_shared = 512;

// Exception that carries a failed read out of a pass.
struct ReadFailed {
    ExternalFailure failure;
};

void wait_for(PieceFile& file, const PieceFile::Read& read, bool in_indices) {
    const auto failure = file.wait(read);
    if (failure) throw ReadFailed{{failure->code, in_indices, failure->offset}};
}

}  // namespace

ExternalSampler::ExternalSampler(const GraphFile& indptr, const GraphFile& indices, ExternalOptions options)
    : indptr_(indptr),
      indices_(indices),
      options_(std::move(options)),
      num_nodes_(indptr.items - 1),
      most_wants_(options_.whole ? std::max<size_t>(most_wants, options_.piece_bytes / want_share) : most_wants) {
    if (num_nodes_ >= no_node)
        throw std::invalid_argument("graphs of 2^32 - 1 nodes or more are not sampled out of core");
    if (options_.piece_bytes > most_piece_bytes) throw std::invalid_argument("pieces have at most 512 MiB");
    for (const GraphFile& file : {indptr_, indices_})
        if (file.offset > most_file_bytes || file.items > most_file_bytes / 8)
            refuse<std::invalid_argument>(file.path, " cannot hold ", file.items, " items from byte ", file.offset,
                                          " on");
    if (options_.piece_bytes % page_bytes != 0 || options_.piece_bytes == 0 || options_.pieces < 2 ||
        options_.group_nodes == 0 || options_.threads == 0)
        throw std::invalid_argument("pieces are whole pages, and at least two of them are in memory");
    if (indptr_.item_bytes != 8 || (indices_.item_bytes != 4 && indices_.item_bytes != 8) || indptr_.offset % 8 != 0 ||
        indices_.offset % indices_.item_bytes != 0)
        throw std::invalid_argument("index pointers have 8 bytes, indices 4 or 8, at multiples of that");
    open_files();
}

void ExternalSampler::open_files() {
    const u64 whole = options_.whole ? options_.piece_bytes : 0;
    const auto open = [&](const GraphFile& file, u32 piece_bytes, u32 pieces) {
        return std::make_unique<PieceFile>(
            file.path, PieceFileOptions{piece_bytes, pieces, options_.depth, file.end(), options_.gap_bytes,
                                        options_.choice, static_cast<u32>(page_bytes), whole});
    };
    // One page more than a piece of index pointers: the end of the last node's list may lie in it.
    pointer_file_ = open(indptr_, options_.piece_bytes + page_bytes, std::max(2U, options_.pieces / 4));
    index_file_ = open(indices_, options_.piece_bytes, options_.pieces);
}

// Created at the first use, so that helper threads inherit their caller's priority.
void ExternalSampler::need_team() {
    if (team_ != nullptr) return;
    team_ = std::make_unique<Team>(static_cast<int>(options_.threads));
    labels_.resize(options_.threads);
}

void ExternalSampler::check_stop() const {
    if (stop_) throw std::runtime_error("sampling was stopped");
}

void ExternalSampler::begin(u64 epoch, Ids numbers, Ids seeds, Ids offsets) {
    check_offsets(offsets, seeds.size(), "the mini-batches' seed nodes");
    if (offsets.size() != numbers.size() + 1)
        throw std::invalid_argument("offsets must have one entry more than there are mini-batches");
    std::vector<Part> parts(numbers.size());
    for (size_t p = 0; p < parts.size(); ++p) {
        Part& part = parts[p];
        part.epoch = epoch;
        part.number = static_cast<u64>(numbers[p]);
        for (auto i = offsets[p]; i < offsets[p + 1]; ++i) {
            part.nodes.push_back(static_cast<u32>(checked_seed(seeds[static_cast<size_t>(i)], num_nodes_)));
        }
        const auto count = static_cast<u32>(part.nodes.size());
        part.seed_order.resize(count);
        for (u32 i = 0; i < count; ++i) part.seed_order[i] = i;
        std::ranges::sort(part.seed_order, {}, [&](u32 i) { return part.nodes[i]; });
        part.runs.push_back({0, count, 0, 0});
        for (u32 i = 1; i < count; ++i)
            if (part.node(0, i - 1) == part.node(0, i)) refuse_repeated_seed(part.node(0, i));
    }
    parts_.reserve(parts_.size() + parts.size());
    begun_.push_back({parts.size()});
    std::move(parts.begin(), parts.end(), std::back_inserter(parts_));
}

std::optional<ExternalFailure> ExternalSampler::pass() {
    const auto hops = static_cast<u32>(options_.fanout.size());
    if (!begun_.empty() && begun_.front().hops >= hops)
        throw std::invalid_argument("the first group has drawn all its hops");
    need_team();
    divide();
    const auto clear = [&] {
        buckets_.clear();
        spare_.clear();
        flights_.clear();
        kept_.clear();
    };
    const auto abandon = [&] {
        clear();
        forget();
        // Reads in flight still write to the files' memory: the next pass opens the files anew.
        pointer_file_.reset();
        index_file_.reset();
    };
    try {
        run_pass();
        const auto finish_hop = [&](size_t p, size_t, int member) {
            // lay_out builds the last hop's block.
            if (parts_[p].hops.size() + 1 < hops) relabel(parts_[p], labels_[static_cast<size_t>(member)]);
        };
        team_->loop(parts_.size(), 1, finish_hop);
    } catch (const ReadFailed& failed) {
        abandon();
        return failed.failure;
    } catch (...) {
        abandon();
        throw;
    }
    clear();
    for (auto& group : begun_) ++group.hops;
    return std::nullopt;
}

void ExternalSampler::finish() {
    if (begun_.empty() || begun_.front().hops != options_.fanout.size())
        throw std::invalid_argument("the first group has hops to draw");
    const auto end = parts_.begin() + static_cast<std::ptrdiff_t>(begun_.front().parts);
    finished_.assign(std::make_move_iterator(parts_.begin()), std::make_move_iterator(end));
    parts_.erase(parts_.begin(), end);
    begun_.pop_front();
}

void ExternalSampler::forget() {
    parts_.clear();
    begun_.clear();
    finished_.clear();
}

// Divides mini-batches by draws, not by number: mini-batches at a later hop draw for more nodes.
void ExternalSampler::divide() {
    std::vector<u64> upto(parts_.size() + 1, 0);
    whole_lists_ = false;
    for (size_t p = 0; p < parts_.size(); ++p) {
        const i64 fanout = options_.fanout[parts_[p].hops.size()];
        whole_lists_ |= fanout < 0;
        upto[p + 1] = upto[p] + (1 + static_cast<u64>(std::max<i64>(fanout, 0))) * parts_[p].nodes.size();
    }
    drawings_.resize(options_.threads);
    size_t begin = 0;
    for (size_t d = 0; d < drawings_.size(); ++d) {
        const u64 bound = upto.back() * (d + 1) / drawings_.size();
        const auto found = std::lower_bound(upto.begin(), upto.end(), bound) - upto.begin();
        drawings_[d].begin = begin;
        begin = drawings_[d].end =
            d + 1 == drawings_.size() ? parts_.size() : std::max<size_t>(begin, static_cast<size_t>(found));
    }
}

void ExternalSampler::run_pass() {
    if (pointer_file_ == nullptr) open_files();
    for (Part& part : parts_) {
        const size_t count = part.nodes.size();
        const i64 fanout = options_.fanout[part.hops.size()];
        part.start.resize(count);
        part.count.resize(count);
        part.arrived.clear();
        if (fanout >= 0) part.arrived.reserve(count * static_cast<size_t>(fanout));
        for (auto& run : part.runs) run.marked = run.drawn = run.begin;
    }
    front_ = indices_.offset / options_.piece_bytes;
    reach_ = indices_.offset;
    const u64 piece = options_.piece_bytes;
    const u64 first_piece = indptr_.offset / piece, last_piece = (indptr_.end() - 1) / piece;
    // Returns the first node whose index pointer lies at or after byte `at` of the file.
    const auto node_at = [&](u64 at) {
        return at <= indptr_.offset ? 0 : std::min(num_nodes_, (at - indptr_.offset) / 8);
    };
    std::deque<std::pair<u64, PieceFile::Read>> asked;
    u64 next = first_piece;
    std::vector<u64> pages(piece / page_bytes / 64 + 2);
    for (;;) {
        while (next <= last_piece && pointer_file_->has_room()) {
            check_stop();
            const u64 base = next * piece, stop = node_at(base + piece);
            std::fill(pages.begin(), pages.end(), 0);
            bool any = false;
            for (Part& part : parts_) {
                for (size_t r = 0; r < part.runs.size(); ++r) {
                    auto& run = part.runs[r];
                    for (; run.marked < run.end && part.node(r, run.marked) < stop; ++run.marked) {
                        const u64 at = indptr_.offset + 8 * u64{part.node(r, run.marked)} - base;
                        PieceFile::mark(pages, at / page_bytes);
                        PieceFile::mark(pages, (at + 8) / page_bytes);
                        any = true;
                    }
                }
            }
            if (any) asked.emplace_back(next, pointer_file_->begin(base, pages, reads_));
            ++next;
        }
        if (asked.empty()) break;
        auto [number, read] = std::move(asked.front());
        asked.pop_front();
        wait_for(*pointer_file_, read, false);
        // Few nodes at a time: the more destinations, the more edges are held before they are read.
        u64 first = node_at(number * piece);
        const u64 stop = node_at((number + 1) * piece);
        u64 width = stop - first;
        while (first < stop) {
            const u64 last = std::min(stop, first + width);
            u64 held = 0, furthest = 0;
            for (const Part& part : parts_) {
                for (size_t r = 0; r < part.runs.size(); ++r) {
                    const u32 drawn = part.runs[r].drawn, until = part.until(r, drawn, last);
                    if (until == drawn) continue;
                    held += until - drawn;
                    furthest = std::max<u64>(furthest, part.node(r, until - 1));
                }
            }
            if (held > options_.group_nodes && width > 1) {
                width = std::max<u64>(1, width / 2);
                continue;
            }
            if (held > 0) {
                i64 start = 0;
                const i64 end = list_end(furthest, number * piece, read.memory, start);
                reach_ = std::max(reach_, indices_.offset + static_cast<u64>(end) * indices_.item_bytes);
                make_room(reach_);
                draw_range(last, held, number * piece, read.memory);
                submit(reach_);
            }
            if (held < options_.group_nodes / 4) width *= 2;
            first = last;
        }
        pointer_file_->give_back(read);
        check_stop();
    }
    while (!buckets_.empty()) submit_front();
    while (!flights_.empty()) complete();
}

i64 ExternalSampler::list_end(u64 node, u64 base, const std::byte* pointers, i64& start) const {
    i64 bounds[2];
    std::memcpy(bounds, pointers + (indptr_.offset + 8 * node - base), sizeof bounds);
    start = bounds[0];
    if (start < 0 || bounds[1] < start || static_cast<u64>(bounds[1]) > indices_.items)
        refuse_list(node, start, bounds[1], indices_.items);
    return bounds[1];
}

void ExternalSampler::draw_range(u64 last, u64 held, u64 base, const std::byte* pointers) {
    const auto draw = [&](size_t d) {
        for (size_t p = drawings_[d].begin; p < drawings_[d].end; ++p)
            draw_part(d, static_cast<u32>(p), last, base, pointers);
    };
    // Whole lists may have any length: one thread then notes edges, and `want` sends full buckets at once.
    alone_ = held < least_shared || whole_lists_;
    if (alone_) {
        for (size_t d = 0; d < drawings_.size(); ++d) draw(d);
    } else {
        team_->share(drawings_.size(), draw);
    }
    for (size_t b = 0; b < buckets_.size(); ++b)
        if (buckets_[b].size() >= most_wants_)
            send(std::exchange(buckets_[b], empty_bucket()), (front_ + b) * options_.piece_bytes, false);
}

void ExternalSampler::draw_part(size_t d, u32 p, u64 last, u64 base, const std::byte* pointers) {
    Part& part = parts_[p];
    const auto hop = static_cast<u32>(part.hops.size());
    const i64 fanout = options_.fanout[hop];
    Drawing& drawing = drawings_[d];
    std::array<DrawnList, kDrawLanes> lists;
    std::array<u32, kDrawLanes> places;
    size_t waiting = 0;
    const auto draw = [&] {
        if (waiting == 0) return;
        const auto count = static_cast<size_t>(fanout);
        drawing.positions.resize(count * kDrawLanes);
        drawing.drawer.draw({lists.data(), waiting}, {options_.seed, part.epoch, part.number, hop}, count,
                            options_.replace, drawing.positions.data());
        for (size_t l = 0; l < waiting; ++l)
            for (size_t k = 0; k < count; ++k)
                want(d, lists[l].start + drawing.positions[lists[l].at + k], p, places[l] + static_cast<u32>(k));
        waiting = 0;
    };
    for (size_t r = 0; r < part.runs.size(); ++r) {
        auto& run = part.runs[r];
        for (; run.drawn < run.end; ++run.drawn) {
            const u32 position = part.position(r, run.drawn), node = part.nodes[position];
            if (node >= last) break;
            i64 start = 0;
            const i64 end = list_end(node, base, pointers, start);
            const auto degree = static_cast<u64>(end - start);
            const u64 kept = PositionDrawer::count(degree, fanout, options_.replace);
            const auto place = static_cast<u32>(part.arrived.size());
            if (part.arrived.size() + kept >= size_t{1} << 31)
                throw std::invalid_argument("one hop has 2^31 edges or more");
            part.start[position] = place;
            part.count[position] = static_cast<u32>(kept);
            part.arrived.resize(part.arrived.size() + kept);
            part.list_reads += kept > 0;
            if (kept == 0) continue;
            if (fanout < 0 || (kept == degree && !options_.replace)) {
                for (u64 k = 0; k < kept; ++k) want(d, static_cast<u64>(start) + k, p, place + static_cast<u32>(k));
                continue;
            }
            lists[waiting] = {node, static_cast<u64>(start), degree, waiting * static_cast<size_t>(fanout)};
            places[waiting++] = place;
            if (waiting == kDrawLanes) draw();
        }
    }
    draw();
}

ExternalSampler::Bucket ExternalSampler::empty_bucket() {
    Bucket bucket;
    if (!spare_.empty()) {
        bucket = std::move(spare_.back());
        spare_.pop_back();
    }
    bucket.alone = 0;
    bucket.shares.resize(drawings_.size());
    for (Share& share : bucket.shares) {
        share.wants.clear();
        share.pages.assign(options_.piece_bytes / page_bytes / 64 + 1, 0);
    }
    return bucket;
}

void ExternalSampler::make_room(u64 reach) {
    while ((front_ + buckets_.size()) * options_.piece_bytes < reach) buckets_.push_back(empty_bucket());
}

void ExternalSampler::want(size_t d, u64 edge, u32 part, u32 place) {
    const u64 at = indices_.offset + edge * indices_.item_bytes;
    const u64 piece = at / options_.piece_bytes;
    if (piece < front_ || piece - front_ >= buckets_.size())
        throw std::out_of_range("neighbour lists do not follow one another: indptr descends");
    Bucket& bucket = buckets_[piece - front_];
    Share& share = bucket.shares[d];
    const auto inside = static_cast<u32>(at % options_.piece_bytes);
    PieceFile::mark(share.pages, inside / page_bytes);
    share.wants.push_back({inside, part, place});
    // Where many mini-batches want the same few nodes, reading the piece more than once bounds the wants held.
    if (alone_ && ++bucket.alone >= most_wants_)
        send(std::exchange(bucket, empty_bucket()), piece * options_.piece_bytes, false);
}

// Sends the buckets of the pieces that end at or before byte `below`.
void ExternalSampler::submit(u64 below) {
    while (!buckets_.empty() && (front_ + 1) * options_.piece_bytes <= below) submit_front();
    // Pieces between the last bucket and `below` hold no wanted edge.
    if (buckets_.empty()) front_ = std::max(front_, below / options_.piece_bytes);
}

void ExternalSampler::submit_front() {
    Bucket bucket = std::move(buckets_.front());
    buckets_.pop_front();
    const u64 base = front_++ * options_.piece_bytes;
    if (bucket.size() > 0) {
        send(std::move(bucket), base, true);
        return;
    }
    recycle(std::move(bucket));
    while (options_.whole && in_memory(base) && !kept_.contains(base)) complete();
    drop_kept(base);
}

bool ExternalSampler::in_memory(u64 base) const {
    return kept_.contains(base) ||
           std::ranges::any_of(flights_, [&](const Flight& one) { return one.read.base == base; });
}

void ExternalSampler::drop_kept(u64 base) {
    const auto found = kept_.find(base);
    if (found == kept_.end()) return;
    index_file_->give_back(found->second);
    kept_.erase(found);
}

void ExternalSampler::recycle(Bucket bucket) {
    if (spare_.size() < options_.pieces) spare_.push_back(std::move(bucket));
}

void ExternalSampler::send(Bucket bucket, u64 base, bool last) {
    if (options_.whole && in_memory(base)) {
        while (!kept_.contains(base)) complete();
        hand_out(bucket, kept_.at(base));
        recycle(std::move(bucket));
        if (last) drop_kept(base);
        return;
    }
    while (!index_file_->has_room()) {
        if (flights_.empty()) drop_kept(kept_.begin()->first);  // read again if more of its edges are wanted
        else complete();
    }
    auto& pages = bucket.shares.front().pages;
    for (size_t d = 1; d < bucket.shares.size(); ++d)
        for (size_t i = 0; i < pages.size(); ++i) pages[i] |= bucket.shares[d].pages[i];
    auto read = index_file_->begin(base, pages, reads_);
    flights_.push_back({std::move(bucket), std::move(read), options_.whole && !last});
}

// Waits for the oldest piece and gives out its edges.
void ExternalSampler::complete() {
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    wait_for(*index_file_, flight.read, true);
    hand_out(flight.bucket, flight.read);
    if (flight.keep) kept_.emplace(flight.read.base, std::move(flight.read));
    else index_file_->give_back(flight.read);
    recycle(std::move(flight.bucket));
    check_stop();
}

// Copies the neighbours that a bucket wants of its piece to their mini-batches.
void ExternalSampler::hand_out(const Bucket& bucket, const PieceFile::Read& read) {
    const std::byte* memory = read.memory;
    const bool wide = indices_.item_bytes == 8;
    const auto copy = [&](size_t d) {
        for (const Want& wanted : bucket.shares[d].wants) {
            u64 id = 0;
            if (wide) {
                std::memcpy(&id, memory + wanted.at, 8);
            } else {
                u32 narrow = 0;
                std::memcpy(&narrow, memory + wanted.at, 4);
                id = narrow;
            }
            if (id >= num_nodes_)
                refuse_source((read.base + wanted.at - indices_.offset) / indices_.item_bytes, id, num_nodes_);
            parts_[wanted.part].arrived[wanted.place] = static_cast<u32>(id);
        }
    };
    if (bucket.size() >= 4 * least_shared) {
        team_->share(bucket.shares.size(), copy);
    } else {
        for (size_t d = 0; d < bucket.shares.size(); ++d) copy(d);
    }
}

}  // namespace outcore
