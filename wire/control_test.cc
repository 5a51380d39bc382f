// SPDX-License-Identifier: Apache-2.0
// Tests of the control messages: round trips, unknown records, truncation, hostile bytes.
#include "wire/control.h"

#include <gtest/gtest.h>

#include <random>

#include "wire/encoder.h"

namespace tendril::wire {
namespace {

ListReply sample_list() {
  ListReply list;
  list.server = "rack7";
  list.product_version = "0.1.0";
  list.driver = "libcuda.so.1";
  list.driver_version = 13000;
  GpuRecord gpu;
  gpu.index = 3;
  gpu.name = "H100";
  gpu.uuid = std::string("\0\1\2", 3);
  gpu.memory_total_bytes = uint64_t(80) << 30;
  gpu.temperature_c = 41;
  list.gpus.assign(2, gpu);
  LeaseRecord lease;
  lease.lease_id = 9;
  lease.client.user = "ada";
  lease.slices = {{3, 500000, 1u << 30}, {4, 250000, 1u << 29}};
  lease.memory_used_bytes = {5, 6};
  lease.terms = {SharePolicy::kCap, -7};
  lease.uses = {{true, 490000, 1'000'000'000'000, 5}, {}};
  lease.passages = {{"10.0.0.3", true}, {"gpu4:7433", false}};
  lease.standing = Standing::kParked;
  lease.standing_s = 70;
  lease.memory_parked_bytes = {4, 0};
  lease.parks = 3;
  list.leases.push_back(lease);
  SessionRecord session;
  session.session_id = 4;
  session.lease_id = 9;
  session.client.program = "train";
  session.calls = 1'000'000'000'000;
  session.measured = true;
  list.sessions.assign(2, session);
  list.now_ns = 77;
  return list;
}

TEST(Control, ListRoundTrip) {
  std::vector<uint8_t> body = encode(sample_list());
  ListReply list;
  ASSERT_TRUE(decode(body.data(), body.size(), &list));
  ASSERT_EQ(list.gpus.size(), 2u);
  EXPECT_EQ(list.gpus[1].uuid, std::string("\0\1\2", 3));
  EXPECT_EQ(list.gpus[1].temperature_c, 41);
  EXPECT_EQ(list.gpus[1].power_mw, -1);
  ASSERT_EQ(list.leases.size(), 1u);
  EXPECT_EQ(list.leases[0].client.user, "ada");
  EXPECT_EQ(list.leases[0].slices[1].share_millionths, 250000u);
  EXPECT_EQ(list.leases[0].memory_used_bytes[1], 6u);
  EXPECT_EQ(list.leases[0].terms.policy, SharePolicy::kCap);
  EXPECT_EQ(list.leases[0].terms.priority, -7);
  ASSERT_EQ(list.leases[0].uses.size(), 2u);
  EXPECT_TRUE(list.leases[0].uses[0].measured);
  EXPECT_EQ(list.leases[0].uses[0].used_ns, 1'000'000'000'000u);
  EXPECT_EQ(list.leases[0].uses[0].recent_millionths, 490000u);
  EXPECT_FALSE(list.leases[0].uses[1].measured);
  ASSERT_EQ(list.leases[0].passages.size(), 2u);
  EXPECT_EQ(list.leases[0].passages[0].server, "10.0.0.3");
  EXPECT_TRUE(list.leases[0].passages[0].sealed);
  EXPECT_FALSE(list.leases[0].passages[1].sealed);
  ASSERT_EQ(list.sessions.size(), 2u);
  EXPECT_EQ(list.sessions[1].client.program, "train");
  EXPECT_EQ(list.sessions[1].calls, 1'000'000'000'000u);
  EXPECT_TRUE(list.sessions[1].measured);
  EXPECT_EQ(list.now_ns, 77u);
}

TEST(Control, PartsOfAListAndNewsRoundTrip) {
  ListRequest request;
  request.parts = kListLeases;
  request.leases_after = 1'000'000'000'000;
  request.limit = 512;
  std::vector<uint8_t> body = encode(request);
  ListRequest asked;
  ASSERT_TRUE(decode(body.data(), body.size(), &asked));
  EXPECT_EQ(asked.parts, uint32_t(kListLeases));
  EXPECT_EQ(asked.leases_after, 1'000'000'000'000u);
  EXPECT_EQ(asked.limit, 512u);
  ListReply part;
  part.more_sessions = true;
  body = encode(part);
  ListReply read;
  ASSERT_TRUE(decode(body.data(), body.size(), &read));
  EXPECT_TRUE(read.more_sessions);
  EXPECT_FALSE(read.more_leases);
  News news;
  body = encode(News{"others came first", 3, 7});
  ASSERT_TRUE(decode(body.data(), body.size(), &news));
  EXPECT_EQ(news.text, "others came first");
  EXPECT_EQ(news.place, 3u);
  EXPECT_EQ(news.of, 7u);
  body = encode(News{std::string(kNewsTextBytesMax + 1, 'x'), 0, 0});
  EXPECT_FALSE(decode(body.data(), body.size(), &news));
}

TEST(Control, ServersThatMeetHaveIdsOfOneLength) {
  const std::string id(16, '\7');
  std::vector<uint8_t> body = encode(MeetReply{id, true});
  MeetReply met;
  ASSERT_TRUE(decode(body.data(), body.size(), &met));
  EXPECT_EQ(met.server_id, id);
  EXPECT_TRUE(met.seals);
  body = encode(MeetReply{id + "x", true});
  EXPECT_FALSE(decode(body.data(), body.size(), &met));
  body = encode(ReachRequest{id.substr(1)});
  ReachRequest asked;
  EXPECT_FALSE(decode(body.data(), body.size(), &asked));
  body = encode(ReachReply{"gpu4:7433", false, 35});
  ReachReply way;
  ASSERT_TRUE(decode(body.data(), body.size(), &way));
  EXPECT_EQ(way.server, "gpu4:7433");
  EXPECT_FALSE(way.sealed);
  EXPECT_EQ(way.round_trip_us, 35u);
}

TEST(Control, AListThatIsTooLongHasNoEncoding) {
  ListReply list = sample_list();
  list.leases.assign(4000, list.leases[0]);
  for (LeaseRecord& lease : list.leases) lease.client.program = std::string(200, 'p');
  EXPECT_TRUE(encode(list).empty());
}

TEST(Control, ParkingIsAskedForAndAnswered) {
  ParkRequest back;
  std::vector<uint8_t> body = encode(ParkRequest{7, true});
  ASSERT_TRUE(decode(body.data(), body.size(), &back));
  EXPECT_EQ(back.lease_id, 7u);
  EXPECT_TRUE(back.wake);
  ParkReply reply;
  body = encode(ParkReply{Standing::kWaking, 1ull << 40, 5, "its programs use NCCL"});
  ASSERT_TRUE(decode(body.data(), body.size(), &reply));
  EXPECT_EQ(reply.standing, Standing::kWaking);
  EXPECT_EQ(reply.parked_bytes, 1ull << 40);
  EXPECT_EQ(reply.stays_bytes, 5u);
  EXPECT_EQ(reply.why, "its programs use NCCL");
}

TEST(Control, WhatAChangeDoesNotSetIsNotSent) {
  ChangeRequest change;
  change.lease_id = 3;
  change.sets_policy = true;
  change.terms.policy = SharePolicy::kCap;
  std::vector<uint8_t> body = encode(change);
  ChangeRequest back;
  ASSERT_TRUE(decode(body.data(), body.size(), &back));
  EXPECT_EQ(back.lease_id, 3u);
  EXPECT_EQ(back.share_millionths, 0u);
  EXPECT_TRUE(back.sets_policy);
  EXPECT_FALSE(back.sets_priority);
  EXPECT_EQ(back.terms.policy, SharePolicy::kCap);
  EXPECT_EQ(back.memory_bytes, 0u);
  change.memory_bytes = 5ull << 30;
  body = encode(change);
  ASSERT_TRUE(decode(body.data(), body.size(), &back));
  EXPECT_EQ(back.memory_bytes, 5ull << 30);
}

// From an old client that knows no terms.
TEST(Control, ALeaseWithoutTermsLends) {
  std::vector<uint8_t> body;
  Encoder encoder(&body, 100);
  encoder.u16(1), encoder.u16(0), encoder.u32(4), encoder.u32(2);
  LeaseRequest request;
  request.terms.policy = SharePolicy::kCap;
  ASSERT_TRUE(decode(body.data(), body.size(), &request));
  EXPECT_EQ(request.count, 2u);
  EXPECT_EQ(request.terms.policy, SharePolicy::kLend);
  EXPECT_EQ(request.terms.priority, 0);
}

TEST(Control, HelloRoundTrip) {
  Hello hello;
  hello.protocol_newest = 7;
  hello.product_version = "0.1.0";
  hello.token = "secret";
  hello.bulk_channels = 4;
  std::vector<uint8_t> body = encode(hello);
  Hello back;
  ASSERT_TRUE(decode(body.data(), body.size(), &back));
  EXPECT_EQ(back.protocol_oldest, kProtocolVersion);
  EXPECT_EQ(back.protocol_newest, 7);
  EXPECT_EQ(back.token, "secret");
  EXPECT_EQ(back.bulk_channels, 4);
}

TEST(Control, AttachRoundTrip) {
  AttachRequest request;
  request.lease.count = 2;
  request.lease.slice.share_millionths = 0;
  request.lease.slice.memory_bytes = 77;
  request.client.pid = 12;
  request.transports.offers = {{"shm", "boot", ""}, {"rdma", "", "no device"}};
  request.api = "cuda";
  request.api_digest = 42;
  std::vector<uint8_t> body = encode(request);
  AttachRequest back;
  ASSERT_TRUE(decode(body.data(), body.size(), &back));
  ASSERT_EQ(back.transports.offers.size(), 2u);
  EXPECT_EQ(back.transports.offers[0].blob, "boot");
  EXPECT_EQ(back.transports.offers[1].unavailable, "no device");
  EXPECT_EQ(back.api, "cuda");
  EXPECT_EQ(back.api_digest, 42u);
  EXPECT_EQ(back.lease.slice.memory_bytes, 77u);
  EXPECT_EQ(back.lease.slice.share_millionths, 0u);

  AttachReply reply;
  reply.session_secret = "s";
  reply.lease.slices = {{1, 2, 3}};
  reply.descriptor_socket = "@x";
  reply.transports.answers = {{"shm", "b", "near"}, {"tcp", "", ""}};
  body = encode(reply);
  AttachReply reply_back;
  ASSERT_TRUE(decode(body.data(), body.size(), &reply_back));
  EXPECT_EQ(reply_back.descriptor_socket, "@x");
  ASSERT_EQ(reply_back.transports.answers.size(), 2u);
  EXPECT_EQ(reply_back.transports.answers[0].reason, "near");

  // What a server says of devices to one that only looks.
  request.only_looks = true;
  body = encode(request);
  ASSERT_TRUE(decode(body.data(), body.size(), &back));
  EXPECT_TRUE(back.only_looks);
  reply.facts = {std::string("\0\1", 2), "b"};
  body = encode(reply);
  ASSERT_TRUE(decode(body.data(), body.size(), &reply_back));
  EXPECT_EQ(reply_back.facts, reply.facts);
  reply.facts[1].resize(kDeviceFactsBytesMax + 1);
  body = encode(reply);
  EXPECT_FALSE(decode(body.data(), body.size(), &reply_back));
  reply.facts.assign(kFactsBytesMax / kDeviceFactsBytesMax + 1,
                     std::string(kDeviceFactsBytesMax, 'x'));
  body = encode(reply);
  EXPECT_FALSE(decode(body.data(), body.size(), &reply_back));
  reply.facts.clear();

  // Texts longer than any transport's are refused.
  reply.transports.answers[0].blob.resize(kTransportBlobBytesMax + 1);
  body = encode(reply);
  EXPECT_FALSE(decode(body.data(), body.size(), &reply_back));
  request.transports.offers.resize(kTransportOffersMax + 1);
  body = encode(request);
  EXPECT_FALSE(decode(body.data(), body.size(), &back));
  EXPECT_EQ(reply_back.lease.slices.at(0).memory_bytes, 3u);
}

// Servers and clients of other versions read these bytes. One field list serves both ends, so only
// this test notices a change.
TEST(Control, BytesStayAsTheyAre) {
  const std::vector<uint8_t> hello = {1, 0, 0, 0, 4, 0, 0, 0, 2, 0, 2, 0,  // protocol 2 to 2
                                      3, 0, 0, 0, 0, 0, 0, 0,              // product version, empty
                                      6, 0, 0, 0, 2, 0, 0, 0, 0, 0};       // bulk channels
  EXPECT_EQ(encode(Hello{}), hello);
  LeaseReply lease;
  lease.lease_id = 9;
  lease.secret = "s";
  lease.slices = {{1, 2, 3}};
  const std::vector<uint8_t> reply = {
      1, 0, 0, 0, 8,  0, 0, 0, 9,   0, 0, 0, 0, 0, 0, 0,  // lease id
      2, 0, 0, 0, 1,  0, 0, 0, 's',                       // secret
      3, 0, 0, 0, 40, 0, 0, 0,                            // a slice
      1, 0, 0, 0, 4,  0, 0, 0, 1,   0, 0, 0,              // gpu
      2, 0, 0, 0, 4,  0, 0, 0, 2,   0, 0, 0,              // share
      3, 0, 0, 0, 8,  0, 0, 0, 3,   0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(encode(lease), reply);
}

TEST(Control, UnknownRecordsAreSkipped) {
  std::vector<uint8_t> body = encode(PingBody{5});
  Encoder more(&body);
  more.reserve(body.size());
  more.u16(999);
  more.u16(0);
  more.blob("future", 6);
  ASSERT_TRUE(more.finish());
  PingBody back;
  ASSERT_TRUE(decode(body.data(), body.size(), &back));
  EXPECT_EQ(back.cookie, 5u);
}

TEST(Control, HelloWithoutProtocolFails) {
  Hello hello;
  EXPECT_FALSE(decode("", 0, &hello));
}

TEST(Control, HostileBytesNeverCrash) {
  std::vector<uint8_t> body = encode(sample_list());
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> bad = body;
    int flips = 1 + int(random() % 4);
    while (flips-- > 0) bad[random() % bad.size()] = uint8_t(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    ListReply list;
    decode(bad.data(), bad.size(), &list);
    AttachRequest request;
    decode(bad.data(), bad.size(), &request);
    Hello hello;
    decode(bad.data(), bad.size(), &hello);
  }
}

TEST(Control, HeadersAreChecked) {
  ControlHeader header;
  EXPECT_TRUE(believable(header));
  header.bytes = kControlBytesMax + 1;
  EXPECT_FALSE(believable(header));
  header.bytes = 0;
  header.magic = 0x54545448;  // "HTTP"
  EXPECT_FALSE(believable(header));
}

}  // namespace
}  // namespace tendril::wire
