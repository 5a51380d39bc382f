// SPDX-License-Identifier: Apache-2.0
// The executable `tendril`: reads the command line and calls the subcommand. Called as `tendrild`
// it is `tendril serve`.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "base/text.h"
#include "cli/command_line.h"
#include "cli/words/completion.h"
#include "cli/words/manual.h"
#include "cli/words/settings_file.h"
#include "cli/words/width.h"
#include "config/text.h"

namespace tendril::cli {

int CommandLine::main(std::vector<std::string> words) {
  // The words after a bare "--" belong to the program, not to the parser.
  const auto end = std::find(words.begin(), words.end(), "--");
  if (end != words.end()) run_options_.program.assign(end + 1, words.end());
  words.erase(end, words.end());
  const base::Status settings = take_settings(&words);
  if (!settings.ok()) return complain(kUsage, settings);
  try {
    const std::string wrong = parse(words);
    if (!wrong.empty()) return complain(kUsage, wrong);
  } catch (const CLI::CallForHelp&) {
    return print_help_of(chosen());
  } catch (const CLI::CallForAllHelp&) {
    return print_help_of_all(shape_of(app_));
  } catch (const CLI::Success& wanted) {  // version
    return app_.exit(wanted);
  }
  return action_();
}

std::string CommandLine::parse(std::vector<std::string> words) {
  const std::string misnamed = unknown_command(words);
  if (!misnamed.empty()) return misnamed;
  std::reverse(words.begin(), words.end());  // CLI11 wants them in this order
  try {
    app_.parse(words);
  } catch (const CLI::Success&) {
    throw;
  } catch (const UnknownWord& unknown) {
    return unknown.text;
  } catch (const CLI::ParseError& error) {
    return complaint(error);
  }
  return "";
}

// Puts what the file of --config says behind the words, if the command has that option.
base::Status CommandLine::take_settings(std::vector<std::string>* words) const {
  const CLI::App* app = &app_;
  for (const std::string& word : *words) {
    const CLI::App* const sub = below(app, word);
    if (sub == nullptr) break;
    app = sub;
  }
  const CLI::Option* const option = app->get_option_no_throw("--config");
  if (option == nullptr) return {};
  for (size_t i = 0; i < words->size(); ++i) {
    const std::string& word = (*words)[i];
    std::string path;
    if (word == "--config" && i + 1 < words->size()) path = (*words)[i + 1];
    if (word.rfind("--config=", 0) == 0) path = word.substr(strlen("--config="));
    if (path.empty()) continue;
    auto text = config::read_file(path);
    if (!text.ok()) return text.status();
    auto more = settings_words(*text, path, shape_of(*app), *words);
    if (!more.ok()) return more.status();
    words->insert(words->end(), more->begin(), more->end());
    return {};
  }
  return {};
}

void CommandLine::add_config() {
  CLI::App* const group =
      app_.add_subcommand("config", "Files with the options of serve and pool serve");
  group->require_subcommand(1);
  for (const bool check : {true, false}) {
    CLI::App* const sub = group->add_subcommand(
        check ? "check" : "print",
        check ? "Whether a file can be read: tendril config check serve FILE"
              : "A file with every option as a comment: tendril config print serve");
    sub->add_option("command", settings_of_,
                    "serve, or pool serve" + std::string(check ? ", and the file" : ""))
        ->type_name(check ? "COMMAND FILE" : "COMMAND")
        ->required();
    sub->final_callback([this, check] {
      if (check) {
        settings_file_ = settings_of_.back();
        settings_of_.pop_back();
      }
      action_ = [this] { return check_settings(); };
    });
  }
}

// With a file: whether it can be read. Else prints one.
int CommandLine::check_settings() const {
  const CLI::App* app = &app_;
  std::string name = "tendril";
  for (const std::string& word : settings_of_) {
    app = app == nullptr ? nullptr : below(app, word);
    name += " " + word;
  }
  if (app == nullptr || app->get_option_no_throw("--config") == nullptr) {
    return complain(kUsage, "'" + base::printable(name, 64) +
                                "' reads no file; 'tendril serve' and 'tendril pool serve' do");
  }
  if (settings_file_.empty()) {
    fputs(settings_template(shape_of(*app)).c_str(), stdout);
    return 0;
  }
  std::vector<std::string> words = settings_of_;
  words.insert(words.end(), {"--config", settings_file_});
  CommandLine other;
  const base::Status read = other.take_settings(&words);
  if (!read.ok()) return complain(kFailed, read);
  const std::string wrong = other.parse(words);
  if (!wrong.empty()) return complain(kFailed, "'" + settings_file_ + "': " + wrong);
  printf("'%s' can be read\n", base::printable(settings_file_, 200).c_str());
  return 0;
}

CLI::App* CommandLine::pool_verb(CLI::App* group, const char* name, const char* description,
                                 const char* words) {
  CLI::App* const sub = group->add_subcommand(name, description);
  add_common(sub, &pool_options_, true);
  if (words != nullptr) sub->add_option("words", pool_options_.arguments, words)->required();
  sub->final_callback([this, name] {
    action_ = [this, name] {
      pool_options_.verb = name;
      return pool_command(pool_options_);
    };
  });
  return sub;
}

void CommandLine::add_pool_commands() {
  add_watch(pool_verb(&app_, "queue", "Who waits in the pool's queue, why, and until when"),
            &pool_options_);
  CLI::App* const group =
      app_.add_subcommand("pool", "Many servers and one place to ask: serve, look, administer");
  group->require_subcommand(1);
  add_pool_serve(group);
  add_pool_check(group);
  add_watch(pool_verb(group, "status", "Servers, accounts and leases of the pool"), &pool_options_);
  pool_verb(group, "drain", "Put nothing new on a server", "SERVER [REASON]");
  pool_verb(group, "undrain", "Use a server again", "SERVER");
  pool_verb(group, "label", "Set labels that filters can name",
            "SERVER KEY=VALUE ... (KEY= removes it)");
  pool_verb(group, "maintenance", "Keep a server free at a time",
            "SERVER FROM TO [REASON], or SERVER none");
  pool_verb(group, "move", "Move GPUs from one account's quota to another's",
            "FROM TO CLASS=GPUS ... [at MOMENT]");
  CLI::App* const apply = pool_verb(group, "apply", "Give the pool another policy");
  apply->add_option("file", pool_options_.file, "The policy")->required();
  apply->add_flag("--dry-run", pool_options_.dry_run,
                  "Change nothing; say who would wait, shrink or end");
  pool_verb(group, "show", "The policy that holds");
  pool_verb(group, "forget", "Forget a server that is gone, and its leases", "SERVER");
  pool_verb(group, "release", "End a lease, or take a request out of the queue", "NUMBER [REASON]");
  pool_verb(group, "park", "Move a lease's GPU memory to its servers' memory", "NUMBER");
  pool_verb(group, "wake", "Move it back", "NUMBER");
  pool_verb(group, "hold", "Keep a request from starting until 'unhold'", "NUMBER [REASON]");
  pool_verb(group, "unhold", "Let a held request start", "NUMBER");
  pool_verb(group, "requeue", "Stop a program of 'run --requeue' and put it back into the queue",
            "NUMBER [REASON]");
}

void CommandLine::add_pool_serve(CLI::App* group) {
  CLI::App* const sub =
      group->add_subcommand("serve",
                            "Schedule a pool (in the foreground); several may, on one "
                            "store");
  sub->final_callback([this] { action_ = [this] { return pool_serve(pool_serve_options_); }; });
  PoolServeOptions& o = pool_serve_options_;
  add_config_option(sub);
  sub->add_option("--store", o.store,
                  "What outlives this process: sqlite:PATH, or etcd://HOST:PORT,... for several "
                  "schedulers (default: SQLite in this user's state)")
      ->type_name("ADDRESS");
  sub->add_option("--keep-leases", o.keep_leases,
                  "Keep the records of ended leases so long, then their sums by hour only; 0: for "
                  "ever")
      ->type_name("DURATION")
      ->capture_default_str();
  sub->add_option("--policy", o.policy,
                  "The pool's policy, for a store that has none; applied again on SIGHUP "
                  "(docs/pool.md)")
      ->type_name("FILE");
  sub->add_option("--name", o.name, "This scheduler's name (default: this host's)");
  sub->add_option("--advertise", o.advertise,
                  "Where others reach it (default: this host's name and the port)")
      ->type_name("HOST[:PORT]");
  sub->add_option("--listen", o.listen, "Address to listen on; repeatable (default 127.0.0.1)")
      ->type_name("ADDR[:PORT]")
      ->allow_extra_args(false);
  sub->add_option("--port", o.port, "Port; 0: any free one")->capture_default_str();
  sub->add_option("--port-file", o.port_file, "Write the port here when ready")->type_name("FILE");
  sub->add_option("--unix", o.unix_paths, "Also listen on this unix socket; repeatable")
      ->type_name("PATH")
      ->allow_extra_args(false);
  sub->add_option("--token-file", o.token_file,
                  "Secret that clients and servers must know (or TENDRIL_TOKEN_FILE, "
                  "TENDRIL_TOKEN)")
      ->type_name("FILE");
  sub->add_option("--identity", o.identity,
                  "Folder with this scheduler's identity, made if it is not there (or "
                  "TENDRIL_IDENTITY)")
      ->type_name("FOLDER");
  sub->add_option("--pool-name", o.pool_name, "Name of the pool")->type_name("NAME");
  sub->add_option("--providers", o.providers, "File with the identity providers to accept")
      ->type_name("FILE");
  sub->add_option("--access-policy", o.access_policy,
                  "Who of this host may come, and what the audit log must have (docs/access.md)")
      ->type_name("FILE");
  sub->add_option("--audit-log", o.audit_log, "As of 'tendril serve': auto, off or a file")
      ->capture_default_str();
  sub->add_option("--sockets", o.sockets, "As of 'tendril serve': auto, off or a folder")
      ->capture_default_str();
  sub->add_option("--connections-max", o.connections_max, "Control connections at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  add_metrics(sub, &o.metrics, &o.metrics_token);
  add_page(sub, &o.page);
  sub->add_flag("-v,--verbose", o.verbose, "Log more");
  sub->add_flag("-q,--quiet", o.quiet, "Log warnings and errors only");
}

void CommandLine::add_pool(CLI::App* sub, PoolOptions* pool) {
  sub->add_option("--filter", pool->filter,
                  "From a pool: only such GPUs, as in 'model ~ \"H200\" and memory >= 40G' (or "
                  "TENDRIL_FILTER)")
      ->type_name("FILTER");
  sub->add_option("--class", pool->user_class,
                  "From a pool: in this class of yours (or TENDRIL_CLASS)")
      ->type_name("NAME");
  sub->add_option("--account", pool->account,
                  "From a pool: for this account of yours (or TENDRIL_ACCOUNT)")
      ->type_name("NAME");
  sub->add_option("--max", pool->longest,
                  "From a pool: the lease ends after this time; shorter ones start sooner (or "
                  "TENDRIL_MAX)")
      ->type_name("TIME");
  sub->add_option("--wait", pool->wait,
                  "From a pool: leave the queue after this time; 0: do not wait (or TENDRIL_WAIT; "
                  "default: wait for ever)")
      ->type_name("TIME");
  CLI::Option* const one =
      sub->add_flag("--one-server", pool->one_server, "From a pool: all slices on one server");
  CLI::Option* const pack =
      sub->add_flag("--pack", pool->pack, "From a pool: on as few servers as possible");
  CLI::Option* const spread =
      sub->add_flag("--spread", pool->spread, "From a pool: on as many servers as possible");
  one->excludes(pack)->excludes(spread);
  pack->excludes(spread);
}

void CommandLine::add_run() {
  CLI::App* const sub =
      command("run", "Run a program on leased GPUs: tendril run [options] -- program arguments",
              [this] { return run(run_options_); });
  add_common(sub, &run_options_, false);
  add_slice(sub, &run_options_.slice);
  add_pool(sub, &run_options_.pool);
  sub->add_option("--local", run_options_.local,
                  "Slices of this machine, before those of other servers. If no server runs here, "
                  "one is started for the program")
      ->check(CLI::Range(1, 64));
  sub->add_option("--signal", run_options_.signal,
                  "From a pool: send the program this signal so long before it loses its GPUs "
                  "(without a time: 60 s)")
      ->type_name("SIGNAL[@TIME]");
  sub->add_option(
         "--events", run_options_.events,
         "From a pool: append a line of JSON here for each thing that happens to the lease "
         "(or TENDRIL_EVENTS)")
      ->type_name("FILE");
  sub->add_flag("--requeue", run_options_.requeue,
                "From a pool: when it takes the GPUs back or a server is lost, end the program, "
                "wait again and start it again; TENDRIL_RESTART_COUNT counts");
  sub->add_option("--outage", run_options_.outage,
                  "How long a cut of the network may last; the program waits, and loses nothing "
                  "(or TENDRIL_OUTAGE; default: 30s, off: any cut ends it)")
      ->type_name("DURATION");
  sub->add_flag(
      "--packed", run_options_.slice.packed,
      "Run beside other packed programs at the same time, on a part of the GPU's processors; "
      "for programs that trust each other");
  sub->add_flag("--opencl", run_options_.opencl,
                "The program uses OpenCL: ask a pool for servers that lend OpenCL devices");
  sub->add_flag("-v,--verbose", run_options_.verbose, "Say which GPUs were leased");
  sub->add_flag("--no-progress", run_options_.no_progress,
                "No line on the terminal while the program attaches or uploads for long");
  // Works without "--", too: the first word that is no option begins the program.
  sub->prefix_command();
  sub->final_callback([this, sub] {
    const std::vector<std::string> rest = sub->remaining();
    if (!rest.empty() && rest[0][0] == '-') throw UnknownWord{unknown_word(known(sub), rest[0])};
    run_options_.program.insert(run_options_.program.begin(), rest.begin(), rest.end());
    action_ = [this] { return run(run_options_); };
  });
}

void CommandLine::add_views() {
  CLI::App* const leases =
      command("ls", "Leases: who holds what", [this] { return list_leases(list_options_); });
  add_common(leases, &list_options_, true);
  add_watch(leases, &list_options_);
  add_filters(leases, &list_options_.filters);
  CLI::App* const gpus = command("smi", "GPUs: memory, utilisation, tenants",
                                 [this] { return show_gpus(smi_options_); });
  add_common(gpus, &smi_options_, true);
  add_watch(gpus, &smi_options_);
  CLI::App* const page = command("page", "An address that signs you in at the page, once",
                                 [this] { return show_page(page_options_); });
  add_common(page, &page_options_, true);
  CLI::App* const live = command("top", "What each session does, again every second; q ends it",
                                 [this] { return top(top_options_); });
  add_common(live, &top_options_, true);
  add_wide(live, &top_options_.wide);
  add_filters(live, &top_options_.filters);
  live->add_option("--sort", top_options_.sort,
                   "The greatest first: had, calls, launches, round-trips, to-gpu, from-gpu, "
                   "waiting, cpu, memory or age")
      ->type_name("COLUMN");
  live->add_flag("--once", top_options_.once, "One picture of one interval, then end");
  add_interval(live, &top_options_.interval_s);
  CLI::App* const sub = command("release", "End leases and the programs on them (administration)",
                                [this] { return release_leases(release_options_, lease_ids_); });
  add_common(sub, &release_options_, false);
  sub->add_option("lease", lease_ids_, "Their numbers, as 'tendril ls' shows them")
      ->type_name("NUMBER...")
      ->required();
}

void CommandLine::add_lease() {
  CLI::App* const group = app_.add_subcommand("lease", "Change leases that live (administration)");
  group->require_subcommand(1);
  CLI::App* const sub =
      group->add_subcommand("set", "New terms for a lease and the programs on it");
  sub->final_callback([this] { action_ = [this] { return change_lease(change_options_); }; });
  ChangeOptions& o = change_options_;
  add_common(sub, &o, false);
  sub->add_option("lease", o.lease_id, "Its number, as 'tendril ls' shows it")->required();
  sub->add_option("-p,--part", o.share, "Part of each of its GPUs from now on; its memory stays")
      ->type_name("FRACTION");
  sub->add_option("-m,--memory", o.memory,
                  "Memory of each of its slices from now on: more if it is free, less if it is not "
                  "used")
      ->type_name("SIZE");
  CLI::Option* const cap =
      sub->add_flag("--cap", o.cap, "Never more of the GPU's time than that, also when it is idle");
  sub->add_flag("--lend", o.lend, "Also what nobody else wants")->excludes(cap);
  add_priority(sub, &o.priority);
  park_command(group, "park",
               "Move its GPU memory to the server's host memory, until it works again", park_lease);
  park_command(group, "wake", "Move the GPU memory of a parked lease back now", wake_lease);
  CLI::App* const holding =
      group->add_subcommand("hold", "Take a lease for a program (the client library does this)");
  holding->final_callback([this] { action_ = [this] { return hold_lease(hold_options_); }; });
  add_common(holding, &hold_options_, false);
  holding->add_option("--fd", hold_options_.descriptor, "Where the program asks and waits")
      ->required();
  holding->group("");
}

void CommandLine::park_command(CLI::App* group, const char* name, const char* description,
                               int (*run)(const ParkOptions&)) {
  CLI::App* const sub = group->add_subcommand(name, description);
  sub->final_callback([this, run] { action_ = [this, run] { return run(park_options_); }; });
  add_common(sub, &park_options_, false);
  sub->add_option("lease", park_options_.lease_id, "Its number, as 'tendril ls' shows it")
      ->required();
}

CLI::App* CommandLine::identity_command(CLI::App* group, const char* name, const char* description,
                                        int (*run)(const IdentityOptions&)) {
  CLI::App* const sub = group->add_subcommand(name, description);
  sub->final_callback([this, run] { action_ = [this, run] { return run(identity_options_); }; });
  sub->add_option("--identity", identity_options_.folder,
                  "Folder with identities (or TENDRIL_IDENTITY; default: tendril/identity in this "
                  "user's configuration)")
      ->type_name("FOLDER");
  return sub;
}

// In the group `identity`, and directly below `tendril`.
void CommandLine::add_join(CLI::App* group) {
  IdentityOptions& o = identity_options_;
  CLI::App* const join = identity_command(
      group, "join", "Get an identity for an invitation: tendril join SERVER --token TOKEN",
      identity_join);
  join->add_option("server", o.server, "Where the pool's authority is")->required();
  join->add_option("--token", o.token, "The join token that an administrator gave you");
  join->add_option("--token-file", o.token_file, "A file with it; '-': standard input")
      ->type_name("FILE");
  join->add_option("--name", o.name, "The name, if the invitation leaves it open");
  join->add_option("--timeout", o.timeout_ms, "Milliseconds to wait for the server");
  CLI::App* const login = identity_command(
      group, "login", "Get an identity for the signed token of an identity provider",
      identity_login);
  login->add_option("server", o.server, "Where the pool's authority is")->required();
  login->add_option("--jwt-file", o.token_file, "A file with the signed token; '-': standard input")
      ->type_name("FILE");
  login->add_option("--provider", o.provider, "Log in with a browser at this identity provider")
      ->type_name("ISSUER")
      ->excludes("--jwt-file");
  login->add_option("--client-id", o.client_id, "How the provider knows this program")
      ->capture_default_str();
  login->add_option("--scope", o.scope, "What to ask the provider for")->capture_default_str();
  login->add_option("--ca-file", o.ca_file, "Whom to believe as the provider's server")
      ->type_name("FILE");
  login->add_option("--pin", o.pin, "The pool's pin; needed once");
  login->add_option("--timeout", o.timeout_ms, "Milliseconds to wait for the server");
  CLI::App* const whoami =
      identity_command(group, "whoami", "The identities of this user", identity_whoami);
  whoami->add_flag("--json", o.json, "Machine-readable output");
}

void CommandLine::add_identity() {
  IdentityOptions& o = identity_options_;
  add_join(&app_);
  CLI::App* const group =
      app_.add_subcommand("identity", "Who users and servers are: make, invite, revoke");
  group->require_subcommand(1);
  add_join(group);
  CLI::App* const init =
      identity_command(group, "init", "Make the authority of a new pool here", identity_init);
  init->add_option("--pool", o.pool, "The pool's name (default: this host's)");
  init->add_option("--admin", o.name, "Its administrator's name (default: this user's)");
  CLI::App* const invite = identity_command(
      group, "invite", "Print a one-time join token: on the authority's machine, or with --server",
      identity_invite);
  invite->add_option("name", o.name, "For whom (default: who joins chooses a free name)");
  invite->add_option("--role", o.role, "admin, operator, user, server or metrics")
      ->capture_default_str();
  invite->add_option("--valid", o.valid, "How long the token works")->capture_default_str();
  invite->add_option("--lifetime", o.lifetime,
                     "How long the certificates last (default: 30d; of servers 365d)");
  invite->add_flag("--json", o.json, "Machine-readable output");
  const char* const by_server = "The authority's server, which is asked as an administrator";
  invite->add_option("-s,--server", o.server, by_server)->type_name("HOST[:PORT]");
  CLI::App* const issued =
      identity_command(group, "list",
                       "Who has a certificate, until when, and whether it was revoked: on the "
                       "authority's machine, or with --server",
                       identity_issued);
  issued->add_flag("--json", o.json, "Machine-readable output");
  issued->add_option("-s,--server", o.server, by_server)->type_name("HOST[:PORT]");
  CLI::App* const revoke = identity_command(
      group, "revoke",
      "Take certificates and invitations back: on the authority's machine, or with --server",
      identity_revoke);
  revoke->add_option("whom", o.whom, "A name, ROLE/NAME, a serial number or a token's id")
      ->required();
  revoke->add_option("-s,--server", o.server, by_server)->type_name("HOST[:PORT]");
  CLI::App* const renew =
      identity_command(group, "renew", "Renew this user's certificates now", identity_renew);
  renew->add_option("--timeout", o.timeout_ms, "Milliseconds to wait for the server");
}

void CommandLine::add_pool_check(CLI::App* group) {
  CLI::App* const sub =
      group->add_subcommand("check", "Read a pool's policy file and say what it means");
  sub->final_callback(
      [this] { action_ = [this] { return check_pool_policy(pool_check_options_); }; });
  PoolCheckOptions& o = pool_check_options_;
  sub->add_option("file", o.file, "The file")->required();
  sub->add_option("--at", o.at, "At another time: 18:00, \"Mon 18:00\", \"2026-12-24 18:00\", +2h")
      ->type_name("TIME");
  sub->add_option("--against", o.against, "Also say what differs from this file")
      ->type_name("FILE");
  sub->add_option("--user", o.user, "Also say which account and class this user gets");
  sub->add_option("--group", o.groups, "A group of that user; repeatable")->allow_extra_args(false);
  sub->add_option("--role", o.role, "The user's role (default: user)");
  sub->add_option("--host", o.host, "The user's host");
  sub->add_option("--account", o.account, "The account that the user names");
  sub->add_option("--class", o.user_class, "The class that the user names");
  sub->add_flag("--settings", o.settings, "Print all settings, with defaults and schedules");
  sub->add_flag("--json", o.json, "Machine-readable output");
}

void CommandLine::add_doctor() {
  CLI::App* const sub = command("doctor", "Check the way to each server, step by step", [this] {
    return measure_library_.empty() ? doctor(doctor_options_) : doctor_measure(measure_library_);
  });
  add_common(sub, &doctor_options_, true);
  sub->add_flag("--no-attach", doctor_options_.no_attach,
                "Take no slice: leave transport and bandwidth out");
  sub->add_option("--measure", measure_library_)->group("");
}

void CommandLine::add_bench() {
  CLI::App* const sub =
      command("bench", "Measure the GPU through Tendril, beside native and bare transport",
              [this] { return bench(bench_options_); });
  BenchOptions& o = bench_options_;
  add_common(sub, &o, true);
  sub->add_option("-p,--part", o.share, "Part of each GPU to measure with (default: a whole GPU)")
      ->type_name("FRACTION");
  sub->add_option("--native", o.native,
                  "This machine's own driver (default: the system's libcuda.so.1)")
      ->type_name("LIBRARY");
  sub->add_flag("--quick", o.quick, "Fewer rounds, copies up to 16 MiB");
  sub->add_flag("--endpoints", o.endpoints,
                "Only copies between the host and each GPU of all servers, each to each");
  sub->add_option("--compare", o.compare, "Only set two reports of --json beside each other")
      ->type_name("BEFORE AFTER")
      ->expected(2);
  sub->add_option("--plot", o.plot, "Also write a page with plots (HTML, works without network)")
      ->type_name("FILE");
}

void CommandLine::add_observe() {
  CLI::App* const sub = command(
      "observe",
      "On a machine with GPUs and without Tendril: record who uses them, each minute; no root",
      [this] { return observe_gpus(observe_options_); });
  ObserveOptions& o = observe_options_;
  sub->add_option("file", o.file,
                  "Where to record (default: observed.db in this user's state; with --live: "
                  "nowhere); 'tendril plan' reads it")
      ->type_name("FILE");
  sub->add_flag("--live", o.live, "Draw what each GPU does, every second; q ends it");
  sub->add_option("--for", o.period, "End after this time (default: never)")->type_name("TIME");
  sub->add_option("--keep", o.keep, "Forget what is older; 0: keep all")
      ->type_name("DURATION")
      ->capture_default_str();
  sub->add_option("--library", o.library,
                  "NVIDIA's monitoring library (default: the system's libnvidia-ml.so.1)")
      ->type_name("LIBRARY");
}

void CommandLine::add_plan() {
  CLI::App* const sub = command(
      "plan", "From records of a cluster: how many GPUs would have done the same work, with waits",
      [this] { return plan_gpus(plan_options_); });
  PlanOptions& o = plan_options_;
  sub->add_option("files", o.files,
                  "Records, or public traces, as CSV; several files are one cluster")
      ->required()
      ->type_name("FILE...");
  sub->add_option("--format", o.format, "text, json, html (one page with plots) or svg (the plots)")
      ->check(CLI::IsMember({"text", "json", "html", "svg"}))
      ->capture_default_str();
  sub->add_option("--card", o.cards_gb, "Memory of a GPU in GB (10^9 bytes); repeatable")
      ->type_name("GB")
      ->allow_extra_args(false)
      ->check(CLI::Range(1.0, 10000.0))
      ->default_str("48 80 141");
  sub->add_option("--wait", o.wait, "95 % of the requests start within this time")
      ->type_name("TIME")
      ->capture_default_str();
  sub->add_option("--idle", o.idle, "Move the memory of who has been idle for this time")
      ->type_name("TIME")
      ->capture_default_str();
  CLI::Option* const parked = sub->add_flag(
      "--parked", o.parked,
      "Instead: how long parked leases wait for their memory, and how many cards they need");
  sub->add_option("--cards", o.parked_cards, "With so many cards; repeatable")
      ->type_name("N")
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 10000))
      ->default_str("the fewest, 30 40 50 60")
      ->needs(parked);
  sub->add_option("--link", o.link_gb_per_s,
                  "GB/s between a card and its server's memory, each way")
      ->type_name("GB")
      ->check(CLI::Range(0.001, 10000.0))
      ->capture_default_str()
      ->needs(parked);
  sub->add_option("--turn", o.turn_s,
                  "Who works makes room as well, after so many seconds; no server does that")
      ->type_name("S")
      ->check(CLI::Range(0.1, 1e6))
      ->needs(parked);
  CLI::Option* const network = sub->add_flag(
      "--network", o.network,
      "Instead: FILE is what TENDRIL_STATS wrote; how long would that program take on such lines?");
  sub->add_option("--line", o.gigabits, "Gb/s of a line; repeatable")
      ->type_name("GBITS")
      ->allow_extra_args(false)
      ->check(CLI::Range(0.001, 10000.0))
      ->default_str("1 10 25 100")
      ->needs(network);
  sub->add_option("--delay", o.delays_us, "Microseconds of a round trip on it; repeatable")
      ->type_name("US")
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 1e7))
      ->default_str("20 100 1000")
      ->needs(network);
  sub->add_option("--assume-active", o.assume_active,
                  "For records without measurements: the part of its time in which a holder works")
      ->type_name("FRACTION");
}

void CommandLine::add_report() {
  CLI::App* const sub = command("report", "Who had how much of a pool's GPUs, from its history",
                                [this] { return report_use(report_options_); });
  ReportOptions& o = report_options_;
  add_common(sub, &o, false);
  sub->add_option(
         "--by", o.by,
         "user, account, user_class, gpu_class, server, lease, hour, day; several with commas")
      ->type_name("NAMES")
      ->capture_default_str();
  sub->add_option("--from", o.from, "A date (2026-11-01, UTC) or a time ago (7d)")
      ->type_name("TIME")
      ->capture_default_str();
  sub->add_option("--to", o.to, "The same, or now")->type_name("TIME")->capture_default_str();
  sub->add_option("--format", o.format, "table, csv, json, or html (one page with plots)")
      ->check(CLI::IsMember({"table", "csv", "json", "html"}))
      ->capture_default_str();
}

void CommandLine::add_rest() {
  command("help", "Help of a command: tendril help pool apply", [this] { return print_help(); })
      ->add_option("command", topic_, "Its words")
      ->type_name("WORD...");
  command("coverage", "Which GPU calls work remotely", [] { return print_coverage(); });
  command("version", "Version of this build", [this] {
    return print_version(version_json_);
  })->add_flag("--json", version_json_, "Machine-readable output");
  command("completion", "Print a completion script for a shell",
          [this] { return print_completion(); })
      ->add_option("shell", shell_, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  CLI::App* const manual = command("manual", "Write the pages of the manual into a folder",
                                   [this] { return write_manual(); });
  manual->add_option("folder", manual_folder_, "The folder")->required();
  manual->group("");  // for packages
  CLI::App* const known = command("known", "Leases or servers, a line for each",
                                  [this] { return print_known(known_options_, known_what_); });
  known->add_option("what", known_what_)->required()->check(CLI::IsMember({"leases", "servers"}));
  known->group("");  // for completion scripts
}

KnownCommand CommandLine::known(const CLI::App* command) {
  const CommandShape shape = shape_of(*command);
  KnownCommand found{shape.name, {}, {}};
  for (const CommandShape& below : shape.commands) found.commands.push_back(last_word(below));
  for (const OptionShape& option : shape.options)
    found.options.insert(found.options.end(), option.names.begin(), option.names.end());
  return found;
}

// Null: it has no such command.
const CLI::App* CommandLine::below(const CLI::App* app, const std::string& name) {
  const auto named = [&name](const CLI::App* sub) { return sub->check_name(name); };
  const auto found = app->get_subcommands(named);
  return found.empty() ? nullptr : found.front();
}

// What the words say where a command must be named, and is none. Empty: they name one, or leave it
// out.
std::string CommandLine::unknown_command(const std::vector<std::string>& words) const {
  const CLI::App* app = &app_;
  for (const std::string& word : words) {
    if (word.empty() || word[0] == '-' || app->get_require_subcommand_min() == 0) return "";
    const CLI::App* const sub = below(app, word);
    if (sub == nullptr) return unknown_word(known(app), word);
    app = sub;
  }
  return "";
}

const CLI::App* CommandLine::chosen() const {
  const CLI::App* app = &app_;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string CommandLine::complaint(const CLI::ParseError& error) const {
  const KnownCommand command = known(chosen());
  std::string text = error.what();
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    // "... not expected: WORD WORD"
    const size_t words = text.find(": ") + 2, option = text.find(" -", words - 1);
    const size_t begin = option == std::string::npos ? words : option + 1;
    return unknown_word(command, text.substr(begin, text.find(' ', begin) - begin));
  }
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + 32);
  return text + "; see '" + command.name + " --help'";
}

int CommandLine::print_help_of(const CLI::App* command) {
  const size_t width = line_width(false);
  fputs(help_text(shape_of(*command), width == 0 ? 80 : std::min<size_t>(width, 100)).c_str(),
        stdout);
  return 0;
}

int CommandLine::print_help_of_all(const CommandShape& command) {
  printf("%s\n", help_text(command, 80).c_str());
  for (const CommandShape& below : command.commands) print_help_of_all(below);
  return 0;
}

int CommandLine::print_help() const {
  const CLI::App* app = &app_;
  for (const std::string& word : topic_) {
    const CLI::App* const sub = below(app, word);
    if (sub == nullptr) return complain(kUsage, unknown_word(known(app), word));
    app = sub;
  }
  return print_help_of(app);
}

int CommandLine::print_completion() const {
  fputs(completion_script(shell_, shape_of(app_)).c_str(), stdout);
  return 0;
}

int CommandLine::write_manual() const {
  for (const ManualPage& page : manual_pages(shape_of(app_), version_text())) {
    const std::string path = manual_folder_ + "/" + page.file;
    FILE* const file = fopen(path.c_str(), "we");
    const bool written = file != nullptr && fputs(page.text.c_str(), file) >= 0;
    if ((file == nullptr || fclose(file) != 0) || !written)
      return complain(kFailed, base::errno_status(base::Code::kUnavailable,
                                                  ("cannot write '" + path + "'").c_str(), errno));
  }
  return 0;
}

}  // namespace tendril::cli

int main(int argc, char** argv) {
  // If the reader of a pipe ends (`tendril ls | head`), the command ends quietly. The daemon
  // changes this for itself.
  const char* const slash = strrchr(argv[0], '/');
  const char* const name = slash != nullptr ? slash + 1 : argv[0];
  std::vector<std::string> words(argv + 1, argv + argc);
  if (strcmp(name, "tendrild") == 0) words.insert(words.begin(), "serve");
  tendril::cli::CommandLine line;
  const int status = line.main(words);
  if (fflush(stdout) != 0) {
    perror("tendril: cannot write");
    return status == 0 ? tendril::cli::kFailed : status;
  }
  return status;
}
