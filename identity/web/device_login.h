// SPDX-License-Identifier: Apache-2.0
// Gets a signed token from an identity provider for a person at a terminal: the device flow (RFC
// 8628). The person opens an address in any browser and types a code, while this machine asks the
// provider again and again. Blocks for as long as the code lasts. Any thread. What the provider
// answers is read here, too, as functions of its text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace tendril::identity {

// Where a provider answers: its document at /.well-known/openid-configuration.
struct ProviderAddresses {
  std::string device, token;
};
// `provider`: the issuer that the document must name.
base::Result<ProviderAddresses> read_provider_addresses(const std::string& document,
                                                        const std::string& provider);

struct DeviceCode {
  std::string device_code;             // a secret
  std::string user_code, address;      // what the person types, and where
  std::string address_with_code;       // empty: there is none
  int64_t expires_s = 0, every_s = 0;  // from now; between two questions
};
base::Result<DeviceCode> read_device_code(const std::string& answer);

struct TokenAnswer {
  enum class State : uint8_t { kGiven, kWaits, kTooFast } state = State::kWaits;
  std::string token;  // kGiven
};
// Not kOk: the person said no, the code expired, or the provider answered something else.
base::Result<TokenAnswer> read_token_answer(int status, const std::string& answer);

struct DeviceLogin {
  std::string provider;   // its issuer, "https://login.example.org"
  std::string client_id;  // as the provider knows this program
  std::string scope = "openid";
  std::string ca_file;                            // of the provider's server; empty: the system's
  std::function<void(const DeviceCode&)> show;    // to the person
  std::function<void(int64_t seconds)> wait_for;  // empty: sleeps
};
// The provider's signed token about the person.
base::Result<std::string> log_in_by_device(const DeviceLogin& login);

}  // namespace tendril::identity
