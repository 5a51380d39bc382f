// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: every control body and hello from arbitrary bytes. A body that decodes must
// encode and decode again.
#include "wire/control.h"
#include "wire/pool.h"

namespace {
template <typename Message>
void attempt(const uint8_t* data, size_t bytes) {
  Message message;
  if (!tendril::wire::decode(data, bytes, &message)) return;
  std::vector<uint8_t> again = tendril::wire::encode(message);
  Message second;
  if (!again.empty() && !tendril::wire::decode(again.data(), again.size(), &second))
    __builtin_trap();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  using namespace tendril::wire;  // NOLINT
  void (*const kinds[])(const uint8_t*, size_t) = {
      attempt<Hello>,         attempt<LeaseRequest>,
      attempt<LeaseReply>,    attempt<ListReply>,
      attempt<AttachRequest>, attempt<AttachReply>,
      attempt<JoinRequest>,   attempt<ReleaseRequest>,
      attempt<PingBody>,      attempt<ChangeRequest>,
      attempt<SecuredAttach>, attempt<ListRequest>,
      attempt<News>,          attempt<EnrollRequest>,
      attempt<RenewRequest>,  attempt<CertificateReply>,
      attempt<DeniedReply>,   attempt<PoolReport>,
      attempt<PoolOrders>,    attempt<ClaimRequest>,
      attempt<Notice>,        attempt<PoolCommand>,
      attempt<PoolAnswer>,    attempt<InviteRequest>,
      attempt<InviteReply>,   attempt<RevokeRequest>,
      attempt<RevokeReply>,   attempt<IssuedRequest>,
      attempt<IssuedReply>,   attempt<MeetReply>,
      attempt<ReachRequest>,  attempt<ReachReply>,
      attempt<ParkRequest>,   attempt<ParkReply>};
  kinds[data[0] % (sizeof kinds / sizeof kinds[0])](data + 1, bytes - 1);
  return 0;
}
