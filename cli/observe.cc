// SPDX-License-Identifier: Apache-2.0
// `tendril observe`: what the GPUs of this machine do and for whom, without a server of ours. It
// looks once a second, keeps a row for each minute, GPU and program, and may draw what is now.
#include <stdio.h>
#include <unistd.h>

#include <optional>

#include "base/clock.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/live/live.h"
#include "cli/words/width.h"
#include "config/quantity.h"
#include "config/text.h"
#include "gpu/monitor.h"
#include "observe/picture.h"
#include "observe/record_file.h"
#include "reception/local_files.h"

namespace tendril::cli {
namespace {

using base::Status;

constexpr uint64_t kLookNs = 1'000'000'000;
constexpr int64_t kForgetEvery_s = 3600;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

bool terminal_shows_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = config::variable(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

class Observer {
 public:
  Observer(const ObserveOptions& options, std::unique_ptr<gpu::Monitor> monitor)
      : options_(options), monitor_(std::move(monitor)) {}

  // Where to: the file that was named, or this user's. With --live alone: nowhere.
  Status open() {
    std::string path = options_.file;
    if (path.empty() && options_.live) return {};
    if (path.empty()) {
      const std::string folder = reception::default_state_folder();
      if (folder.empty())
        return Status(base::Code::kInvalid,
                      "this user has no home for the records; name a file: tendril observe FILE");
      path = folder + "/observed.db";
    }
    auto file = observe::RecordFile::open(path, host_name());
    if (!file.ok()) return file.status();
    file_ = file.take();
    path_ = path;
    return {};
  }

  int run(uint64_t keep_s, std::optional<uint64_t> for_s) {
    const Live live;
    std::vector<gpu::DeviceUse> uses = monitor_->look();
    if (uses.empty())
      return complain(kFailed, "NVIDIA's library is here and shows no GPU; does nvidia-smi?");
    if (file_ != nullptr && !options_.live) announce(uses.size());
    for (uint64_t looks = 0; !for_s.has_value() || looks < *for_s; ++looks) {
      const double into_second =
          static_cast<double>(base::wall_ns() % kLookNs) / static_cast<double>(kLookNs);
      if (!live.wait(1 - into_second)) break;
      uses = monitor_->look();
      const auto now_s = static_cast<int64_t>(base::wall_ns() / kLookNs);
      const auto ended = minutes_.add(now_s, uses, owner_of_);
      if (!ended.empty()) {
        keep(ended);
        forget(now_s, static_cast<int64_t>(keep_s));
        owners_.forget();
      }
      if (options_.live && !live.show(picture(now_s, uses))) break;
    }
    keep(minutes_.rest());
    return lost_ ? kFailed : 0;
  }

 private:
  void announce(size_t gpus) const {
    fprintf(stderr, "tendril: records %zu GPU%s into %s, each second; 'tendril plan %s' reads it\n",
            gpus, gpus == 1 ? "" : "s", path_.c_str(), path_.c_str());
  }

  void keep(const std::vector<observe::GpuMinute>& minutes) {
    if (file_ == nullptr || minutes.empty()) return;
    const Status kept = file_->write(minutes);
    if (!kept.ok()) complain(kFailed, "a minute is lost: " + kept.message());
    lost_ = !kept.ok();
  }

  void forget(int64_t now_s, int64_t keep_s) {
    if (file_ == nullptr || keep_s == 0 || now_s < forgot_at_s_ + kForgetEvery_s) return;
    forgot_at_s_ = now_s;
    const Status done = file_->forget_before(now_s - keep_s);
    if (!done.ok()) complain(kFailed, done);
  }

  std::string picture(int64_t now_s, const std::vector<gpu::DeviceUse>& uses) {
    const auto day_s = static_cast<int>(now_s % 86'400);
    std::string head = base::format("%s, %02d:%02d:%02d UTC", host_name().c_str(), day_s / 3600,
                                    day_s / 60 % 60, day_s % 60);
    if (file_ != nullptr) head += ", recorded in " + path_;
    const size_t width = line_width(false);
    return picture_.draw(head, uses, owner_of_, {width == 0 ? 80 : width, terminal_shows_utf8()});
  }

  const ObserveOptions& options_;
  const std::unique_ptr<gpu::Monitor> monitor_;
  std::unique_ptr<observe::RecordFile> file_;
  std::string path_;
  observe::Owners owners_;
  const observe::Minutes::OwnerOf owner_of_ = [this](uint32_t pid) -> const observe::Owner& {
    return owners_.of(pid);
  };
  observe::Minutes minutes_;
  observe::Picture picture_;
  int64_t forgot_at_s_ = 0;
  bool lost_ = false;  // the last minute
};

}  // namespace

int observe_gpus(const ObserveOptions& options) {
  auto keep_s = config::parse_duration(options.keep);
  if (!keep_s.ok()) return complain(kUsage, "--keep: " + keep_s.status().message());
  std::optional<uint64_t> for_s;
  if (!options.period.empty()) {
    auto period_s = config::parse_duration(options.period);
    if (!period_s.ok()) return complain(kUsage, "--for: " + period_s.status().message());
    for_s = *period_s;
  }
  auto monitor = gpu::Monitor::open(options.library);
  if (!monitor.ok()) {
    return complain(kFailed,
                    monitor.status().message() +
                        "; run this on a machine with NVIDIA's driver, or name the library "
                        "with --library");
  }
  Observer observer(options, monitor.take());
  const Status opened = observer.open();
  if (!opened.ok()) return complain(kFailed, opened);
  return observer.run(*keep_s, for_s);
}

}  // namespace tendril::cli
