// SPDX-License-Identifier: Apache-2.0
// What there is to write after `tendril`: each command with its options (CLI11), and which function
// of commands.h runs it. main.cc makes one and runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/identity.h"
#include "cli/pool/policy.h"
#include "cli/words/parser_shape.h"
#include "cli/words/usage.h"
#include "wire/control.h"

namespace tendril::cli {

// Thrown while the words are parsed.
struct UnknownWord {
  std::string text;
};

class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.set_help_all_flag("--help-all", "Help of every command");
    app_.set_version_flag("--version", std::string("tendril ") + version_text());
    add_serve();
    add_pool_commands();
    add_run();
    add_env();
    add_integrations();
    add_views();
    add_lease();
    add_identity();
    add_doctor();
    add_bench();
    add_observe();
    add_plan();
    add_report();
    add_config();
    add_rest();
  }

  // Returns the exit status.
  int main(std::vector<std::string> words);

 private:
  template <typename Run>
  CLI::App* command(const char* name, const char* description, Run run) {
    CLI::App* const sub = app_.add_subcommand(name, description);
    sub->final_callback([this, run] { action_ = run; });
    return sub;
  }

  static void add_common(CLI::App* sub, CommonOptions* options, bool json) {
    sub->add_option("-s,--server", options->servers,
                    "A server: HOST, HOST:PORT, [V6]:PORT or unix:PATH; repeatable. Otherwise "
                    "TENDRIL_SERVERS, "
                    "servers.conf or this machine")
        ->type_name("HOST[:PORT]")
        ->allow_extra_args(false);
    sub->add_option("--token-file", options->token_file,
                    "File with the servers' token (or TENDRIL_TOKEN_FILE, TENDRIL_TOKEN)")
        ->type_name("FILE");
    sub->add_option("--timeout", options->timeout_ms, "Milliseconds to wait for a server")
        ->check(CLI::Range(1, 3600000))
        ->capture_default_str();
    if (json) sub->add_flag("--json", options->json, "Machine-readable output");
  }

  static void add_wide(CLI::App* sub, bool* wide) {
    sub->add_flag("--wide", *wide, "All columns, also those that the terminal has no room for");
  }
  static void add_filters(CLI::App* sub, std::vector<std::string>* filters) {
    sub->add_option("--filter", *filters,
                    "Only leases whose user, host, program or server has this text, or with this "
                    "number (lease); repeatable")
        ->type_name("KEY=TEXT")
        ->allow_extra_args(false);
  }
  static void add_watch(CLI::App* sub, WatchOptions* options) {
    add_wide(sub, &options->wide);
    CLI::Option* const watch =
        sub->add_flag("-w,--watch", options->watch, "Again and again; q ends it");
    add_interval(sub, &options->interval_s)->needs(watch);
  }
  static CLI::Option* add_interval(CLI::App* sub, double* interval_s) {
    return sub->add_option("--interval", *interval_s, "Seconds between two pictures")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
  }

  static void add_slice(CLI::App* sub, SliceOptions* slice) {
    sub->add_option("-n,--gpus", slice->count,
                    "Slices in all, filled from the first server on (default: 1, or 1 from each "
                    "--server)")
        ->check(CLI::Range(1, 64));
    sub->add_option("-p,--part", slice->share,
                    "Part of a GPU for each slice: 0.5, 1/3 or 35% (default: a whole GPU)")
        ->type_name("FRACTION");
    sub->add_option("-m,--memory", slice->memory,
                    "Memory of each slice: 10G, 512M; a bare number counts in MiB")
        ->type_name("SIZE");
    sub->add_flag("--cap", slice->capped,
                  "Never more of the GPU's time than this, also when it is idle");
    add_priority(sub, &slice->priority);
  }

  static void add_pool(CLI::App* sub, PoolOptions* pool);
  template <typename Number>
  static void add_priority(CLI::App* sub, Number* priority) {
    sub->add_option("--priority", *priority,
                    "Higher is served first, but gets no more: -100 to 100 (default: 0)")
        ->check(CLI::Range(-wire::kPriorityMax, wire::kPriorityMax));
  }

  void add_serve();
  void add_serve_drivers(CLI::App* sub);
  void add_serve_parking(CLI::App* sub);
  void add_serve_isolation(CLI::App* sub);
  void add_serve_access(CLI::App* sub);
  void add_serve_identity(CLI::App* sub);
  void add_serve_switches(CLI::App* sub);
  static void add_metrics(CLI::App* sub, std::string* address, std::string* token_file);
  static void add_page(CLI::App* sub, std::string* address);
  void add_serve_pool(CLI::App* sub);
  void add_pool_commands();
  // `words`: what its arguments are; null: it has none.
  CLI::App* pool_verb(CLI::App* group, const char* name, const char* description,
                      const char* words = nullptr);
  void add_pool_serve(CLI::App* group);
  void add_run();
  void add_env();
  void add_integrations();
  void add_jupyter();
  void add_views();
  void add_lease();
  void add_identity();
  void add_pool_check(CLI::App* group);
  void park_command(CLI::App* group, const char* name, const char* description,
                    int (*run)(const ParkOptions&));
  CLI::App* identity_command(CLI::App* group, const char* name, const char* description,
                             int (*run)(const IdentityOptions&));
  void add_join(CLI::App* group);
  void add_doctor();
  void add_bench();
  void add_observe();
  void add_plan();
  void add_report();
  void add_rest();
  static KnownCommand known(const CLI::App* command);
  static const CLI::App* below(const CLI::App* app, const std::string& name);
  std::string unknown_command(const std::vector<std::string>& words) const;
  std::string complaint(const CLI::ParseError& error) const;
  const CLI::App* chosen() const;
  static int print_help_of(const CLI::App* command);
  static int print_help_of_all(const CommandShape& command);
  int print_help() const;
  int print_completion() const;
  int write_manual() const;
  void add_config();
  void add_config_option(CLI::App* sub);
  base::Status take_settings(std::vector<std::string>* words) const;
  int check_settings() const;
  // Why these words cannot be; empty: they can.
  std::string parse(std::vector<std::string> words);

  CLI::App app_{"Tendril attaches programs to slices of GPUs in the network.", "tendril"};
  std::function<int()> action_ = [] { return kUsage; };
  ServeOptions serve_options_;
  PoolServeOptions pool_serve_options_;
  PoolCommandOptions pool_options_;
  RunOptions run_options_;
  EnvOptions env_options_;
  CdiOptions cdi_options_;
  JupyterOptions jupyter_options_;
  InstallOptions install_options_;
  TopOptions top_options_;
  WatchOptions list_options_, smi_options_;
  CommonOptions page_options_, release_options_, known_options_;
  ChangeOptions change_options_;
  ParkOptions park_options_;
  HoldOptions hold_options_;
  IdentityOptions identity_options_;
  PoolCheckOptions pool_check_options_;
  DoctorOptions doctor_options_;
  BenchOptions bench_options_;
  ObserveOptions observe_options_;
  PlanOptions plan_options_;
  ReportOptions report_options_;
  std::string measure_library_, shell_, manual_folder_, known_what_, settings_file_, config_path_;
  std::vector<std::string> settings_of_;
  std::vector<uint64_t> lease_ids_;
  std::vector<std::string> topic_;  // of help
  bool version_json_ = false;
};

}  // namespace tendril::cli
