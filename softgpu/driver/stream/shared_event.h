// SPDX-License-Identifier: Apache-2.0
// The state of an event that several processes record and wait for: a page of shared memory with
// the numbers of the latest record and of the latest complete record. If a process ends, its
// unfinished records count as complete. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace tendril::softgpu {

class SharedEvent {
 public:
  // Null: no memory.
  static std::shared_ptr<SharedEvent> create();
  // Takes over ownership of the file.
  static std::shared_ptr<SharedEvent> open(int file);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;

  int file() const { return file_; }
  // Begins a record and returns its number. Call `finish` when the device has reached it.
  uint32_t begin();
  void finish(uint32_t record);
  uint32_t latest() const;
  bool complete(uint32_t record);
  // Waits until `record` is complete, or *cancel (which may be null) is set.
  void wait(uint32_t record, const std::atomic<bool>* cancel);

 private:
  struct State {
    std::atomic<uint32_t> latest, done;
    std::atomic<int32_t> recorder;  // the process of the latest record
  };
  SharedEvent(int file, State* state) : file_(file), state_(state) {}

  const int file_;
  State* const state_;
};

}  // namespace tendril::softgpu
