// SPDX-License-Identifier: Apache-2.0
// Any bytes as an answer of etcd. Whatever is believed keeps the promises of etcd_messages.h.
#include <cstdint>

#include "base/check.h"
#include "base/text.h"
#include "store/etcd_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tendril::store;  // NOLINT: a program
  namespace base = tendril::base;
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto page = etcd::read_range(text);
  if (page.ok()) {
    for (const etcd::KeyValue& found : page->found) TENDRIL_CHECK(!found.key.empty());
  }
  auto answer = etcd::read_txn(text);
  if (answer.ok()) TENDRIL_CHECK(answer->revision > 0);
  (void)etcd::read_keepalive(text).ok();
  auto token = etcd::read_token(text);
  if (token.ok()) TENDRIL_CHECK(token->find_first_of("\r\n ") == std::string::npos);
  TENDRIL_CHECK(!etcd::read_refusal(500, text).message.empty());
  std::string bytes;
  if (base::read_base64(text, &bytes)) TENDRIL_CHECK(bytes.size() <= size);
  TENDRIL_CHECK(base::read_base64(base::base64(text), &bytes) && bytes == text);
  return 0;
}
