// Work shared between the cores of this process.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace msrun {

// Threads that wait for work, one for each core that the process may use but the caller's.
class Threads {
 public:
  static Threads &get() {
    static Threads *threads = new Threads();  // never destroyed: they end with the process
    return *threads;
  }

  // body(task) for each task in 0 .. count-1, in any order on any thread: no result may depend on either.
  void run(int64_t count, const std::function<void(int64_t)> &body) {
    if (helpers_ == 0 || getpid() != owner_) {  // a forked process has none of the threads
      for (int64_t task = 0; task < count; ++task) body(task);
      return;
    }
    std::lock_guard<std::mutex> one_at_a_time(entry_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      body_ = &body;
      count_ = count;
      next_ = 0;
      busy_ = helpers_;
      ++round_;
    }
    start_.notify_all();
    work();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  Threads() {
    cpu_set_t allowed;
    int cores = 1;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) cores = CPU_COUNT(&allowed);
    helpers_ = std::max(cores - 1, 0);
    for (int i = 0; i < helpers_; ++i) std::thread([this] { serve(); }).detach();
  }

  void work() {
    for (int64_t task = next_++; task < count_; task = next_++) (*body_)(task);
  }

  void serve() {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        start_.wait(lock, [&] { return round_ != seen; });
        seen = round_;
      }
      work();
      std::lock_guard<std::mutex> lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex entry_, mutex_;
  std::condition_variable start_, done_;
  const std::function<void(int64_t)> *body_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
  int helpers_ = 0, busy_ = 0;
  const pid_t owner_ = getpid();
  uint64_t round_ = 0;
};

}  // namespace msrun
