// SPDX-License-Identifier: Apache-2.0
// The options of commands that prepare programs which `tendril run` does not start: env, and what
// containers and whole machines need.
#include "cli/command_line.h"

namespace tendril::cli {

namespace {

void add_opencl(CLI::App* sub, EnvOptions* options) {
  sub->add_flag("--opencl", options->opencl,
                "Show the servers' OpenCL devices to OpenCL programs, and none of other drivers");
}

}  // namespace

void CommandLine::add_env() {
  CLI::App* const sub = command(
      "env", "Print the variables with which any launcher or container attaches by itself", [this] {
        env_options_.program = run_options_.program;
        return print_environment(env_options_);
      });
  add_common(sub, &env_options_, true);
  add_slice(sub, &env_options_.slice);
  add_pool(sub, &env_options_.pool);
  add_opencl(sub, &env_options_);
  sub->add_flag("--docker", env_options_.docker,
                "As options for docker run or podman run; with '-- docker run ...', run that")
      ->excludes("--json");
  sub->add_flag("--show-token", env_options_.show_token,
                "Print the token itself when it is known by value only");
}

void CommandLine::add_integrations() {
  CLI::App* const group = app_.add_subcommand("cdi", "GPUs for containers by name (CDI)");
  group->require_subcommand(1);
  CLI::App* const generate = group->add_subcommand(
      "generate", "Print a specification with devices such as tendril.io/gpu=half");
  generate->final_callback([this] { action_ = [this] { return generate_cdi(cdi_options_); }; });
  add_common(generate, &cdi_options_, false);
  add_pool(generate, &cdi_options_.pool);
  add_opencl(generate, &cdi_options_);
  generate
      ->add_option("--device", cdi_options_.devices,
                   "A device: half=0.5, small=10G or both=0.5,10G; repeatable (default: whole, "
                   "half, third, quarter, tenth)")
      ->type_name("NAME=SLICE")
      ->allow_extra_args(false);
  generate->add_option("-n,--gpus", cdi_options_.slice.count, "Slices of each device (default: 1)")
      ->check(CLI::Range(1, 64));
  generate
      ->add_option("-o,--output", cdi_options_.output,
                   "Write it there, such as /etc/cdi/tendril.json")
      ->type_name("FILE");
  add_jupyter();
  CLI::App* const install =
      command("install-client", "Let every program of this machine find the GPU libraries (root)",
              [this] { return install_client(install_options_); });
  install->add_flag("--undo", install_options_.undo, "Take it back");
  install->add_option("--root", install_options_.root, "Of the system below this folder instead")
      ->type_name("FOLDER");
}

void CommandLine::add_jupyter() {
  CLI::App* const group = app_.add_subcommand("jupyter", "Notebooks with slices of network GPUs");
  group->require_subcommand(1);
  CLI::App* const install = group->add_subcommand(
      "install", "Add a kernel to Jupyter and VS Code that takes a slice at its first GPU call");
  JupyterOptions& o = jupyter_options_;
  install->final_callback(
      [this] { action_ = [this] { return install_kernel(jupyter_options_); }; });
  add_common(install, &o, false);
  add_slice(install, &o.slice);
  add_pool(install, &o.pool);
  add_opencl(install, &o);
  install->add_option("--name", o.name, "The kernel's name; another one adds another kernel")
      ->capture_default_str();
  install->add_option("--display-name", o.display_name, "What people choose it by")
      ->type_name("TEXT");
  install
      ->add_option("--python", o.python,
                   "The Python of its notebooks, with ipykernel (default: the one beside this "
                   "command, else python3)")
      ->type_name("FILE");
  install->add_option("--prefix", o.prefix, "In FOLDER/share/jupyter (default: for this user)")
      ->type_name("FOLDER");
}

}  // namespace tendril::cli
