// SPDX-License-Identifier: Apache-2.0
// See offers.h.
#include "session/control/offers.h"

#include <algorithm>

#include "base/text.h"
#include "session/control/control_io.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;
using transport::Transport;

namespace {

bool names(const std::string& list, const std::string& kind) {
  const std::vector<std::string> kinds = base::split_at_commas(list);
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace

Offers Offers::make(const transport::Setting& setting, const std::string& only) {
  Offers offers;
  for (const Transport* transport : transport::transports()) {
    if (transport->only_by_name && !names(only, transport->kind)) continue;
    wire::TransportOffer record;
    record.kind = transport->kind;
    if (!only.empty() && !transport->uses_connections && !names(only, transport->kind)) {
      record.unavailable = "it is switched off at the client";
    } else {
      Result<std::unique_ptr<transport::Half>> half = transport->offer(setting);
      if (half.ok()) {
        record.blob = (*half)->blob();
        offers.own_.push_back({transport, half.take()});
      } else {
        record.unavailable = half.status().message().substr(0, wire::kTransportReasonBytesMax);
      }
    }
    offers.records_.offers.push_back(std::move(record));
  }
  return offers;
}

Offers::Own* Offers::find(const std::string& kind) {
  for (Own& own : own_) {
    if (kind == own.transport->kind) return &own;
  }
  return nullptr;
}

Status check_kind(const std::string& only) {
  const std::vector<std::string> wanted = base::split_at_commas(only);
  const auto unknown = std::find_if(wanted.begin(), wanted.end(), [](const std::string& kind) {
    return transport::find_transport(kind) == nullptr;
  });
  if (only.empty() || unknown == wanted.end()) return Status();
  std::string kinds = "auto";
  for (const Transport* transport : transport::transports())
    kinds += std::string(", ") + transport->kind;
  return Status(Code::kInvalid, base::format("TENDRIL_TRANSPORT is '%s', which this build does not "
                                             "have; write one or more of: %s",
                                             cleaned(*unknown).c_str(), kinds.c_str()));
}

namespace {

bool is_offered(const Transport& transport, const wire::TransportOffers& offers) {
  for (const wire::TransportOffer& offer : offers.offers) {
    if (offer.kind == transport.kind) return true;
  }
  return false;
}

// This end's half for the client's offer of that kind, or the reason why there is none.
Result<std::unique_ptr<transport::Half>> answer(const Transport& transport,
                                                const wire::TransportOffers& offers,
                                                const transport::Setting& setting) {
  for (const wire::TransportOffer& offer : offers.offers) {
    if (offer.kind != transport.kind) continue;
    if (!offer.unavailable.empty()) return Status(Code::kUnavailable, cleaned(offer.unavailable));
    return transport.answer(setting, offer.blob);
  }
  return Status(Code::kUnsupported, "the client does not have it");
}

}  // namespace

void forbid_fabrics(wire::TransportOffers* offers, const std::string& why) {
  for (wire::TransportOffer& offer : offers->offers) {
    const Transport* const transport = transport::find_transport(offer.kind);
    if (transport == nullptr || (transport->abilities & transport::kRegistersMemory) == 0) continue;
    offer.blob.clear();
    offer.unavailable = why;
  }
}

Result<Choice> choose(const wire::TransportOffers& offers, const transport::Setting& setting) {
  Choice choice;
  std::string against;
  for (const Transport* transport : transport::transports()) {
    // After the choice, only a transport over connections is wanted.
    if (!choice.halves.empty() && !transport->uses_connections) continue;
    if (transport->only_by_name && !is_offered(*transport, offers)) continue;
    Result<std::unique_ptr<transport::Half>> half = answer(*transport, offers, setting);
    if (!half.ok()) {
      against += (against.empty() ? "no " : "; no ") + std::string(transport->kind) + ": " +
                 half.status().message();
      continue;
    }
    wire::TransportAnswer chosen;
    chosen.kind = transport->kind;
    chosen.blob = (*half)->blob();
    chosen.reason = (against.empty() ? std::string(transport->why) : against)
                        .substr(0, wire::kTransportReasonBytesMax);
    if (choice.halves.empty()) choice.descriptor = (*half)->take_descriptor();
    choice.answers.answers.push_back(std::move(chosen));
    choice.halves.push_back(half.take());
    if (transport->uses_connections) break;
  }
  if (choice.halves.empty()) {
    return Status(Code::kUnsupported, "client and server have no transport in common (" + against +
                                          "); install the same version on both");
  }
  return choice;
}

Result<transport::Channels> open_choice(Choice choice, wire::StartOn on, transport::Streams streams,
                                        Candidate* candidate) {
  const std::vector<wire::TransportAnswer>& answers = choice.answers.answers;
  if (on == wire::StartOn::kFirst) return choice.halves.front()->open(std::move(streams));
  const Transport* const first = transport::find_transport(answers.front().kind);
  const bool may_be_carried = choice.halves.size() > 1 && streams.acknowledgements.valid() &&
                              (first->abilities & transport::kCarriesLines) != 0;
  streams.lasting.may_be_carried = may_be_carried;
  Result<transport::Channels> channels = choice.halves.back()->open(std::move(streams));
  if (!channels.ok() || !may_be_carried) return channels;
  *candidate = {answers.front().kind, answers.back().kind, std::move(choice.halves.front()),
                channels->lasting, std::make_shared<LatePinned>()};
  channels->pinned = candidate->pinned;
  return channels;
}

}  // namespace tendril::session
