// Streams, graphs, copies and what else the tests of the Hopper backend ask CUDA for. No CUDA header is needed here; in
// a build without CUDA all of this throws Error(unsupported), and the tests skip before they get to it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "coda/backend/sm90/choice.h"
#include "coda/backend/sm90/device.h"

namespace coda::test {

/// A stream of its own, which waits for no other.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* get() const { return stream_; }
  /// Until all of its work is done.
  void wait() const;

 private:
  void* stream_ = nullptr;
};

/// Both wait until the copy is done, and for what the stream did before.
void copy_to_device(void* to, const void* from, std::size_t bytes, void* stream);
void copy_to_host(void* to, const void* from, std::size_t bytes, void* stream);
/// `rows` times `width` bytes; pitches in bytes, the same on both sides.
void copy_rows_to_host(void* to, const void* from, std::size_t pitch, std::size_t width, std::size_t rows,
                       void* stream);

/// Does not wait.
void copy_on_device(void* to, const void* from, std::size_t bytes, void* stream);

/// Whether CUDA refuses what no capture can hold from every thread meanwhile, or from this one only.
enum class Capture : std::uint8_t { global, of_this_thread };

/// What `work` enqueues on the stream, as a graph that may be launched again and again.
class Graph {
 public:
  Graph(const Stream& stream, const std::function<void()>& work, Capture mode = Capture::global);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(const Stream& stream) const;
  /// Kernels in it: a fused program is one.
  int kernels() const { return kernels_; }
  /// Those of them that are not this library's, such as cuBLASLt's.
  int others() const { return others_; }

 private:
  void* graph_ = nullptr;
  void* executable_ = nullptr;
  int kernels_ = 0, others_ = 0;
};

/// Kernels, copies and all else that `work` enqueues on the stream before it returns or throws.
int nodes_enqueued(const Stream& stream, const std::function<void()>& work);

/// Holds back all that streams enqueue after `hold` until it is opened.
class Gate {
 public:
  Gate();
  ~Gate();  // opens it, and waits until what it held back may run
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void hold(const Stream& stream) const;
  void open() { open_ = true; }
  /// Whether nobody opened it for 30 s, and it opened by itself.
  bool timed_out() const { return timed_out_; }

 private:
  static void wait(void* gate);

  std::atomic<bool> open_{false}, timed_out_{false};
  Stream stream_;
  void* passed_ = nullptr;  // an event
};

/// As an application does that asks for more memory than there is, and does not look at what CUDA said.
void leave_an_error();
void forget_errors();

std::size_t free_device_memory();
/// What the pool of the library's workspaces has taken from the device so far.
std::size_t workspace_pool_bytes();

/// While it lives, products of the calling thread run as chosen wherever a fused kernel takes their arguments.
class ChosenWay {
 public:
  explicit ChosenWay(sm90::Way way) { sm90::set_way(way); }
  explicit ChosenWay(const sm90::Choice& choice) { sm90::set_choice(choice); }
  ~ChosenWay() { sm90::set_way(sm90::Way::automatic); }
  ChosenWay(const ChosenWay&) = delete;
  ChosenWay& operator=(const ChosenWay&) = delete;
};

int device_count();
/// While it lives, the calling thread's current device is another.
class CurrentDevice {
 public:
  explicit CurrentDevice(int number);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

/// A test that is skipped where there is no Hopper GPU.
class OnHopper : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!sm90::available(&why)) GTEST_SKIP() << why;
  }
};

}  // namespace coda::test
