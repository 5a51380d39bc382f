// SPDX-License-Identifier: Apache-2.0
// See offers.h.
#include "session/control/offers.h"

#include "base/text.h"
#include "session/control/control_io.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;
using transport::Transport;

Offers Offers::make(const transport::Setting& setting, const std::string& only) {
  Offers offers;
  for (const Transport* transport : transport::transports()) {
    wire::TransportOffer record;
    record.kind = transport->kind;
    if (!only.empty() && !transport->uses_connections && only != transport->kind) {
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
  if (only.empty() || transport::find_transport(only) != nullptr) return Status();
  std::string kinds = "auto";
  for (const Transport* transport : transport::transports())
    kinds += std::string(", ") + transport->kind;
  return Status(Code::kInvalid, base::format("TENDRIL_TRANSPORT is '%s', which this build does not "
                                             "have; write one of: %s",
                                             cleaned(only).c_str(), kinds.c_str()));
}

namespace {

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

Result<Choice> choose(const wire::TransportOffers& offers, const transport::Setting& setting) {
  Choice choice;
  std::string against;
  for (const Transport* transport : transport::transports()) {
    // After the choice, only a transport over connections is wanted.
    if (!choice.halves.empty() && !transport->uses_connections) continue;
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

Result<transport::Channels> open_choice(Choice choice, wire::StartOn on,
                                        transport::Streams streams) {
  transport::Half& half =
      on == wire::StartOn::kFirst ? *choice.halves.front() : *choice.halves.back();
  return half.open(std::move(streams));
}

}  // namespace tendril::session
