// Streams of the request log, shared by all backends of the process.
#include "io/request_log.hpp"

#include <filesystem>
#include <map>
#include <mutex>

namespace outcore {
namespace {

std::mutex mutex;
std::map<u64, RequestLog::Stream> streams;

std::string path_of(int fd) { return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string(); }

}  // namespace

void RequestLog::start() {
    const std::lock_guard lock(mutex);
    streams.clear();
    on_.store(true);
}

std::vector<RequestLog::Stream> RequestLog::take() {
    const std::lock_guard lock(mutex);
    on_.store(false);
    std::vector<Stream> found;
    found.reserve(streams.size());
    for (auto& [id, stream] : streams) found.push_back(std::move(stream));
    streams.clear();
    return found;
}

void RequestLog::append(const Io& io) {
    const std::lock_guard lock(mutex);
    auto known = streams.find(id_);
    if (known == streams.end()) known = streams.emplace(id_, Stream{path_of(fd_), depth_, {}}).first;
    const u64 write = io.write ? 1 : 0;
    known->second.requests.insert(known->second.requests.end(), {io.offset, io.length, write});
}

}  // namespace outcore
