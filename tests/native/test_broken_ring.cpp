// A ring fails with reads in flight: no call returns while the kernel still writes to its memory. The file is a pipe,
// whose reads stay in flight until the test writes; the ring's descriptor is replaced by one of /dev/null.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "base/aligned_memory.hpp"
#include "check.hpp"
#include "io/range_queue.hpp"
#include "read/reader.hpp"

using namespace outcore;

namespace {

constexpr std::size_t block = 4096;

// Named pipe that this process writes to.
class Pipe {
public:
    Pipe() : path(std::filesystem::temp_directory_path() / ("outcore-pipe-" + std::to_string(getpid()))) {
        std::filesystem::remove(path);
        CHECK(mkfifo(path.c_str(), 0600) == 0);
        fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
        CHECK(fd_ >= 0);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() {
        close(fd_);
        std::filesystem::remove(path);
    }

    void write(int value) const {
        const std::vector<std::byte> bytes(block, static_cast<std::byte>(value));
        CHECK(::write(fd_, bytes.data(), block) == static_cast<ssize_t>(block));
    }

    std::string path;

private:
    int fd_;
};

// Breaks every ring of this process: later calls with it fail, reads in flight go on.
void break_rings() {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        if (std::filesystem::read_symlink(entry.path(), gone).string().find("[io_uring]") == std::string::npos)
            continue;
        CHECK(dup2(null, std::stoi(entry.path().filename())) >= 0);
        ++found;
    }
    close(null);
    CHECK(found == 1);
}

bool filled(const std::byte* memory, int value) {
    for (std::size_t i = 0; i < block; ++i)
        if (memory[i] != static_cast<std::byte>(value)) return false;
    return true;
}

void wait_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

template <class Result>
bool is_ready(const std::future<Result>& result) {
    return result.wait_for(std::chrono::milliseconds(300)) == std::future_status::ready;
}

void a_queue_waits_for_reads_in_flight() {
    const Pipe pipe;
    RangeQueue queue(pipe.path, {4, block, true, true});
    const AlignedMemory memory(3 * block);
    // Two requests of one range, so that both are in flight before either arrives.
    const auto ticket = queue.submit(0, 2 * block, {memory.data(), 2 * block});
    auto asked = std::async(std::launch::async, [&queue, ticket] { return queue.wait(ticket); });
    wait_briefly();
    break_rings();
    pipe.write(1);  // one read completes, and the queue submits the next
    wait_briefly();
    CHECK(!is_ready(asked));  // the kernel may still write to the memory of the other read
    pipe.write(2);
    const auto failure = asked.get().failure;
    CHECK(failure && failure->code != 0 && failure->code != ECANCELED);
    const std::byte *first = memory.data(), *second = first + block;
    CHECK((filled(first, 1) && filled(second, 2)) || (filled(first, 2) && filled(second, 1)));
    // Later ranges fail with the ring's error.
    const auto after = queue.wait(queue.submit(0, block, {memory.data() + 2 * block, block})).failure;
    CHECK(after && after->code == failure->code);
    queue.close();
}

ReaderOptions options() {
    ReaderOptions made;
    made.num_rows = 100;
    made.row_bytes = block;
    made.depth = 4;
    made.rule.merge = false;
    made.choice.need_ring = true;
    made.register_buffers = false;
    return made;
}

void a_reader_waits_for_reads_in_flight() {
    const Pipe pipe;
    Reader reader(pipe.path, options());
    const AlignedMemory memory(2 * block);
    const std::vector<std::int64_t> ids{0, 1};
    auto read = std::async(std::launch::async,
                           [&] { return reader.read(ids, {memory.data(), 2, reader.layout().row_bytes}, {}); });
    wait_briefly();
    break_rings();
    pipe.write(1);
    CHECK(!is_ready(read));
    pipe.write(2);
    const auto result = read.get();
    CHECK(result.failure && result.failure->code != 0);
    CHECK(filled(memory.data(), 2) || filled(memory.data() + block, 2));
    // Later reads fail at once.
    CHECK(reader.read(ids, {memory.data(), 2, reader.layout().row_bytes}, {}).failure);
    CHECK(reader.read({}, {memory.data(), 2, reader.layout().row_bytes}, {}).counts.requests == 0);
}

void a_staged_read_that_is_left_waits_for_reads_in_flight() {
    const Pipe pipe;
    Reader reader(pipe.path, options());
    const AlignedMemory memory(4 * block);
    const std::vector<std::int64_t> ids{0, 1, 2};
    auto read = std::make_unique<GroupRead>(reader, ids, std::span(memory.data(), memory.size()), 1);
    GroupRead::Group group{};
    pipe.write(1);
    CHECK(read->next(group) == GroupRead::State::group);
    wait_briefly();
    break_rings();
    auto left = std::async(std::launch::async, [&] { read.reset(); });
    CHECK(!is_ready(left));
    pipe.write(2);
    pipe.write(3);
    left.get();
    CHECK(reader.read(ids, {memory.data(), 4, reader.layout().row_bytes}, {}).failure);
}

}  // namespace

int main() {
    try {
        const TestFile file(block);
        RangeQueue(file.path, {4, block, true, true});
    } catch (const std::runtime_error& error) {
        std::cout << "skipped: no io_uring (" << error.what() << ")" << std::endl;
        return 0;
    }
    a_queue_waits_for_reads_in_flight();
    a_reader_waits_for_reads_in_flight();
    a_staged_read_that_is_left_waits_for_reads_in_flight();
}
