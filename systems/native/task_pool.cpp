// The shared task pool.
#include "task_pool.hpp"

#include <algorithm>

namespace outcore {

TaskPool& TaskPool::shared() {
    // Never destroyed: a helper may sit in a page fault when the process ends.
    static TaskPool* pool = new TaskPool;
    return *pool;
}

TaskPool::~TaskPool() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    job_there_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void TaskPool::run(std::size_t count, std::size_t chunk, unsigned threads,
                   const std::function<void(std::size_t, std::size_t)>& body) {
    Job job{&body, count, std::max<std::size_t>(chunk, 1)};
    const std::size_t chunks = (count + job.chunk - 1) / job.chunk;
    const unsigned helpers = static_cast<unsigned>(std::min<std::size_t>(threads, chunks));
    const unsigned extra = helpers > 0 ? helpers - 1 : 0;
    if (extra > 0) {
        const std::lock_guard lock(mutex_);
        wanted_ += extra;
        while (threads_.size() < wanted_) threads_.emplace_back([this] { help(); });
        places_.insert(places_.end(), extra, &job);
    }
    for (unsigned i = 0; i < extra; ++i) job_there_.notify_one();
    job.work();
    if (extra > 0) {
        std::unique_lock lock(mutex_);
        std::erase(places_, &job);  // helpers that have not begun need not
        helper_left_.wait(lock, [&] { return job.active == 0; });
        wanted_ -= extra;
    }
}

void TaskPool::help() {
    std::unique_lock lock(mutex_);
    for (;;) {
        job_there_.wait(lock, [&] { return closing_ || !places_.empty(); });
        if (closing_) return;
        Job* job = places_.front();
        places_.pop_front();
        ++job->active;
        lock.unlock();
        job->work();
        lock.lock();
        if (--job->active == 0) helper_left_.notify_all();
    }
}

}  // namespace outcore
