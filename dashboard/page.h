// SPDX-License-Identifier: Apache-2.0
// The page and its interface for programs: files that are part of this program, and routes under
// /api/v1 (web/openapi.json describes them). Each request is somebody's: by certificate, by a
// session that a pass or the token began, or by the token itself. It gets what its role may see and
// do; what changes something must come from the page itself or from a program, never from another
// site. http/ calls it on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "access/principal.h"
#include "base/result.h"
#include "dashboard/interest.h"
#include "dashboard/model.h"
#include "dashboard/passes.h"
#include "dashboard/source.h"
#include "http/site.h"
#include "reception/front.h"

namespace tendril::dashboard {

struct PageOptions {
  Source* source = nullptr;  // both must outlive the page
  reception::Front* front = nullptr;
};

class Page final : public http::Site {
 public:
  explicit Page(PageOptions options);
  ~Page() override;

  // Any thread. What signs `who` in once.
  base::Result<std::string> give_pass(const access::Principal& who);

  void begin(Post post) override;
  size_t body_bytes_max(const http::Request& request) override;
  void serve(http::Request request, std::shared_ptr<http::Exchange> exchange) override;
  void tick(uint64_t now_ns) override;

 private:
  using ExchangePtr = std::shared_ptr<http::Exchange>;
  struct Caller {
    access::Principal who;
    Rights rights;
    std::string session;  // of its cookie; empty: it has none
  };
  struct Call {
    http::Request request;
    ExchangePtr exchange;
    Caller caller;
    std::vector<std::string> words;  // of the path, after /api/v1
    std::vector<std::pair<std::string, std::string>> query;
    std::string option(const std::string& name) const;
  };
  using Handler = void (Page::*)(std::shared_ptr<Call> call);
  struct Route;
  struct Stream {
    ExchangePtr exchange;
    Caller caller;
    Interest interest;
    uint64_t since = 0, events_since = 0;
    bool begun = false;
    uint64_t spoke_ns = 0;
  };
  struct Shared;  // with what is asked of the source, which may answer after this object's end

  static const Route* find_route(const http::Request& request, const std::vector<std::string>& path,
                                 bool* other_method);
  void serve_api(http::Request request, ExchangePtr exchange);
  base::Status check_origin(const http::Request& request, const http::Visitor& visitor) const;
  base::Result<Caller> recognize(const http::Request& request, const http::Visitor& visitor);
  access::Evidence evidence_of(const http::Visitor& visitor) const;
  // With a model that is at most a second old. The status: why there is none.
  void with_model(std::function<void(const base::Status&)> then);
  void looked(base::Result<view::Picture> picture);
  void send_changes(uint64_t now_ns);
  bool send_to(Stream* stream, uint64_t now_ns);
  std::string events_json(const Caller& caller, uint64_t* since, size_t limit) const;
  static void forget_picture(Shared* shared);
  void command(const std::shared_ptr<Call>& call, wire::PoolCommand command);
  void look_up(const std::shared_ptr<Call>& call, wire::PoolCommand command);

  void get_me(std::shared_ptr<Call> call);
  void post_session(std::shared_ptr<Call> call);
  void delete_session(std::shared_ptr<Call> call);
  void get_stream(std::shared_ptr<Call> call);
  void get_now(std::shared_ptr<Call> call);
  void get_servers(std::shared_ptr<Call> call);
  void get_server(std::shared_ptr<Call> call);
  void get_leases(std::shared_ptr<Call> call);
  void get_lease(std::shared_ptr<Call> call);
  void get_queue(std::shared_ptr<Call> call);
  void get_accounts(std::shared_ptr<Call> call);
  void get_events(std::shared_ptr<Call> call);
  void get_past_events(std::shared_ptr<Call> call);
  void get_history(std::shared_ptr<Call> call);
  void get_totals(std::shared_ptr<Call> call);
  void get_policy(std::shared_ptr<Call> call);
  void post_policy(std::shared_ptr<Call> call);
  void post_dry_run(std::shared_ptr<Call> call);
  void post_release(std::shared_ptr<Call> call);
  void post_change(std::shared_ptr<Call> call);
  void post_verb(std::shared_ptr<Call> call);
  void post_drain(std::shared_ptr<Call> call);
  void post_undrain(std::shared_ptr<Call> call);

  const PageOptions options_;
  Passes passes_;
  std::shared_ptr<Shared> shared_;
  // The server's thread's.
  Model model_;
  std::string epoch_;                                              // of this model
  std::vector<std::function<void(const base::Status&)>> waiting_;  // for a picture
  bool looking_ = false;
  uint64_t looked_ns_ = 0, model_ns_ = 0;
  base::Status trouble_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace tendril::dashboard
