// SPDX-License-Identifier: Apache-2.0
// Tells `tendril run` that the program attaches or uploads (wire/progress_page.h), if a terminal
// waits for that. Otherwise each mark costs one load and one branch. Not on the path of launches.
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "wire/progress_page.h"

namespace tendril::client::core {

// Null: nobody looks. Stays mapped in forked children.
extern std::atomic<wire::ProgressPage*> g_progress;

// Opens the page that TENDRIL_PROGRESS names, once. Something else there is passed over.
void find_progress();

// Takes a line away that stands on the terminal. Call it before the library writes there.
void clear_progress();

// From here to the end of the scope the program attaches.
class AttachProgress {
 public:
  AttachProgress();
  ~AttachProgress();
  AttachProgress(const AttachProgress&) = delete;
  AttachProgress& operator=(const AttachProgress&) = delete;
};

// The same of an upload. The lane counts what it has sent (session::Lane::count_into).
inline void upload_begins(uint64_t bytes) {
  wire::ProgressPage* const page = g_progress.load(std::memory_order_acquire);
  if (page == nullptr) return;
  page->begun_bytes.fetch_add(bytes, std::memory_order_relaxed);
  page->uploading.fetch_add(1, std::memory_order_seq_cst);
}
void upload_ended_on(wire::ProgressPage* page, uint64_t ns);
inline void upload_ended(uint64_t ns) {
  wire::ProgressPage* const page = g_progress.load(std::memory_order_acquire);
  if (page != nullptr) upload_ended_on(page, ns);
}

}  // namespace tendril::client::core
