// Streams, graphs and copies for the tests of the Hopper backend. No CUDA header is needed here; in a build without
// CUDA all of this throws Error(unsupported), and the tests skip before they get to it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>

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

/// What `work` enqueues on the stream, as a graph that may be launched again and again.
class Graph {
 public:
  Graph(const Stream& stream, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(const Stream& stream) const;
  /// Kernels in it: a fused program is one.
  int kernels() const { return kernels_; }

 private:
  void* graph_ = nullptr;
  void* executable_ = nullptr;
  int kernels_ = 0;
};

std::size_t free_device_memory();

/// A test that is skipped where there is no Hopper GPU.
class OnHopper : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!sm90::available(&why)) GTEST_SKIP() << why;
  }
};

}  // namespace coda::test
