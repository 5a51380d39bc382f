// SPDX-License-Identifier: Apache-2.0
// A server's identity while it serves: what it makes at first, and how it answers who joins.
#include "identity/service.h"

#include <gtest/gtest.h>

#include <set>

#include "base/clock.h"
#include "base/text.h"
#include "identity/files.h"
#include "identity/test_pool.h"

namespace tendril::identity {
namespace {

using base::Code;

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    ServiceOptions options;
    options.folder = files_.path() + "/identity";
    options.pool = "lab";
    auto started = Service::start(options);
    ASSERT_TRUE(started.ok()) << started.status().message();
    service_ = started.take();
  }
  template <typename Message>
  base::Result<std::vector<uint8_t>> ask(wire::Request kind, const Message& message,
                                         const std::string& identity = "", bool sealed = true) {
    session::Peer peer;
    peer.text = "192.0.2.7:4711";
    peer.identity = identity;
    return service_->answer(uint16_t(kind), wire::encode(message), peer, sealed);
  }
  wire::EnrollRequest enrolment(const std::string& token) {
    const JoinToken read = read_join_token(token).take();
    return {read.id, read.secret, "", "bob", make_request(key_).take()};
  }
  TestFolder files_;
  const Key key_ = make_key().take();
  std::unique_ptr<Service> service_;
};

TEST_F(ServiceTest, TheFirstStartMakesAPool) {
  EXPECT_TRUE(service_->is_issuer());
  EXPECT_EQ(service_->name().role, Role::kServer);
  EXPECT_EQ(service_->name().pool, "lab");
  EXPECT_FALSE(service_->first_invitation().empty());
  auto all = load_identities(files_.path() + "/identity");
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].facts.name.role, Role::kAdmin);
  service_.reset();
  auto again = Service::start({files_.path() + "/identity", "other", "", {}});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value()->name().pool, "lab");
  EXPECT_EQ(again.value()->first_invitation(), "");
}

TEST_F(ServiceTest, JoinsAndRenews) {
  const wire::EnrollRequest request = enrolment(service_->first_invitation());
  EXPECT_EQ(ask(wire::Request::kEnroll, request, "", false).status().code(), Code::kRefused);
  auto answer = ask(wire::Request::kEnroll, request);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  wire::CertificateReply reply;
  ASSERT_TRUE(wire::decode(answer->data(), answer->size(), &reply));
  const Certificate certificate = read_certificate(reply.certificate).take();
  EXPECT_EQ(read_facts(certificate)->name, (Name{"lab", Role::kUser, "bob"}));
  EXPECT_EQ(ask(wire::Request::kEnroll, request).status().code(), Code::kRefused);
  wire::RenewRequest again{reply.certificate, make_request(key_).take()};
  EXPECT_TRUE(ask(wire::Request::kRenew, again, "spiffe://lab/user/bob").ok());
  // Neither somebody else nor another key.
  EXPECT_FALSE(ask(wire::Request::kRenew, again, "spiffe://lab/user/eve").ok());
  EXPECT_FALSE(ask(wire::Request::kRenew, again).ok());
  again.request = make_request(make_key().take()).take();
  EXPECT_FALSE(ask(wire::Request::kRenew, again, "spiffe://lab/user/bob").ok());
}

TEST_F(ServiceTest, RevokingIsSeenWithinSeconds) {
  auto answer = ask(wire::Request::kEnroll, enrolment(service_->first_invitation()));
  ASSERT_TRUE(answer.ok());
  wire::CertificateReply reply;
  ASSERT_TRUE(wire::decode(answer->data(), answer->size(), &reply));
  const Facts facts = read_facts(read_certificate(reply.certificate).take()).take();
  EXPECT_FALSE(service_->tls()->is_denied(facts.serial));
  auto authority = Authority::open(authority_folder(files_.path() + "/identity")).take();
  EXPECT_EQ(authority->revoke("bob", wall_clock_s()).take(), 1u);
  const base::Deadline deadline(10'000);
  while (!service_->tls()->is_denied(facts.serial) && !deadline.passed()) usleep(20'000);
  EXPECT_TRUE(service_->tls()->is_denied(facts.serial));
  const wire::RenewRequest again{reply.certificate, make_request(key_).take()};
  EXPECT_FALSE(ask(wire::Request::kRenew, again, "spiffe://lab/user/bob").ok());
  // Servers of the pool get the list, nobody else.
  EXPECT_FALSE(ask(wire::Request::kDenied, wire::PingBody(), "spiffe://lab/user/bob").ok());
  auto list = ask(wire::Request::kDenied, wire::PingBody(), "spiffe://lab/server/gpu2");
  ASSERT_TRUE(list.ok());
  wire::DeniedReply denied;
  ASSERT_TRUE(wire::decode(list->data(), list->size(), &denied));
  EXPECT_TRUE(DenyList::read(denied.list)->has(facts.serial));
}

TEST_F(ServiceTest, LongListsComeInPages) {
  auto authority = Authority::open(authority_folder(files_.path() + "/identity")).take();
  const size_t at_first = authority->issued(wall_clock_s())->size();
  constexpr size_t kMore = wire::kIssuedPageMax + 3;
  std::string text = read_file(authority->folder() + "/issued", Secrecy::kSecret).take();
  for (size_t i = 0; i < kMore; ++i) {
    const std::string now = std::to_string(wall_clock_s() - int64_t(i / 2));
    text += base::format("%032zx", i) + " user many " + now + " 4000000000 60 token\n";
  }
  ASSERT_TRUE(write_file(authority->folder() + "/issued", text, Secrecy::kSecret).ok());
  std::set<std::string> serials;
  wire::IssuedRequest asked;
  wire::IssuedReply page;
  for (int pages = 0; pages < 3 && (pages == 0 || page.more); ++pages) {
    auto answer = service_->administer(uint16_t(wire::Request::kIssued), wire::encode(asked));
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    ASSERT_TRUE(wire::decode(answer->data(), answer->size(), &page));
    ASSERT_LE(page.certificates.size(), wire::kIssuedPageMax);
    for (const wire::IssuedCertificate& one : page.certificates) serials.insert(one.serial);
    ASSERT_FALSE(page.certificates.empty());
    asked = {page.certificates.back().issued_s, page.certificates.back().serial};
  }
  EXPECT_FALSE(page.more);
  EXPECT_EQ(serials.size(), at_first + kMore);
}

TEST_F(ServiceTest, AdministratorsInviteAndRevoke) {
  const auto administer = [&](wire::Request kind, auto message) {
    return service_->administer(uint16_t(kind), wire::encode(message));
  };
  const auto issued_to = [&](const char* identity) -> std::string {
    auto answer = administer(wire::Request::kIssued, wire::IssuedRequest());
    wire::IssuedReply reply;
    if (!answer.ok() || !wire::decode(answer->data(), answer->size(), &reply)) return "no answer";
    for (const wire::IssuedCertificate& one : reply.certificates)
      if (one.identity == identity) return one.revoked ? "revoked" : "valid";
    return "missing";
  };
  wire::InviteRequest invitation{"operator", "eve", 60, 3600};
  auto answer = administer(wire::Request::kInvite, invitation);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  wire::InviteReply invited;
  ASSERT_TRUE(wire::decode(answer->data(), answer->size(), &invited));
  answer = ask(wire::Request::kEnroll, enrolment(invited.token));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  wire::CertificateReply joined;
  ASSERT_TRUE(wire::decode(answer->data(), answer->size(), &joined));
  const Facts facts = read_facts(read_certificate(joined.certificate).take()).take();
  EXPECT_EQ(facts.name, (Name{"lab", Role::kOperator, "eve"}));
  EXPECT_EQ(issued_to("spiffe://lab/operator/eve"), "valid");
  answer = administer(wire::Request::kRevoke, wire::RevokeRequest{"eve"});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  wire::RevokeReply revoked;
  ASSERT_TRUE(wire::decode(answer->data(), answer->size(), &revoked));
  EXPECT_EQ(revoked.count, 1u);
  EXPECT_EQ(issued_to("spiffe://lab/operator/eve"), "revoked");
  const wire::RenewRequest again{joined.certificate, make_request(key_).take()};
  EXPECT_FALSE(ask(wire::Request::kRenew, again, "spiffe://lab/operator/eve").ok());
  EXPECT_EQ(administer(wire::Request::kRevoke, wire::RevokeRequest{"nobody"}).status().code(),
            Code::kNotFound);
  invitation.role = "king";
  EXPECT_EQ(administer(wire::Request::kInvite, invitation).status().code(), Code::kInvalid);
  invitation.role = "user";
  invitation.valid_s = 0;
  EXPECT_EQ(administer(wire::Request::kInvite, invitation).status().code(), Code::kInvalid);
}

TEST_F(ServiceTest, ProvidersAreNamedOnlyIfThereAreAny) {
  wire::EnrollRequest request;
  request.provider_token = "e30.e30.e30";
  EXPECT_EQ(ask(wire::Request::kEnroll, request).status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace tendril::identity
