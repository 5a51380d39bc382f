// SPDX-License-Identifier: Apache-2.0
// A plug-in of Slurm (SPANK): `--gpu-slice=0.5` of srun, sbatch and salloc. Before a job starts on
// a node it runs `slurm-lease take`, which holds the lease as root, and after the job `slurm-lease
// end`. Each task of the job gets the lease's variables. What the plug-in is told in
// plugstack.conf: lease=FILE, where slurm-lease is; folder=FOLDER, where leases of jobs are noted;
// settings=FILE. Loaded by srun as the user and by slurmd's processes as root. It never fails a
// prolog: Slurm would take the node out of service. A refused lease fails the job's tasks instead.
#include <errno.h>
#include <fcntl.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(tendril, 1);

enum { kPathMax = 512, kSliceMax = 32, kFileMax = 64 << 10 };

static char lease_program[kPathMax] = "/usr/libexec/tendril/slurm-lease";
static char folder[kPathMax] = "/run/tendril-slurm";
static char settings[kPathMax] = "/etc/tendril/slurm.conf";

// "0.5", "1/3", "35%" or "10G", and perhaps ":2". The rest is for the server to judge.
static int is_slice(const char* text) {
  if (text == NULL || *text < '0' || *text > '9' || strlen(text) >= kSliceMax) return 0;
  return text[strspn(text, "0123456789./%:KMGTi")] == 0;
}

static int check_option(int value, const char* argument, int remote) {
  (void)value;
  (void)remote;
  if (is_slice(argument)) return 0;
  slurm_error(
      "--gpu-slice: expected a part of a GPU or a size, and perhaps how many of them, such "
      "as 0.5, 1/3, 10G or 0.5:2");
  return -1;
}

static struct spank_option option = {
    "gpu-slice",
    "PART[:COUNT]",
    "on each node of the job, that part of a network GPU (0.5, 1/3, 10G), so many times",
    1,
    0,
    check_option};

static int starts_with(const char* text, const char* begin) {
  return strncmp(text, begin, strlen(begin)) == 0;
}

// Slurm's prolog and epilog do not call slurm_spank_init, so each entry reads them.
static void read_words(int count, char* words[]) {
  for (int i = 0; i < count; ++i) {
    char* const places[] = {lease_program, folder, settings};
    const char* const names[] = {"lease=", "folder=", "settings="};
    int known = 0;
    for (int n = 0; n < 3; ++n) {
      if (!starts_with(words[i], names[n])) continue;
      snprintf(places[n], kPathMax, "%s", words[i] + strlen(names[n]));
      known = 1;
    }
    if (!known) slurm_error("tendril: plugstack.conf: unknown word '%s'", words[i]);
  }
}

int slurm_spank_init(spank_t spank, int count, char* words[]) {
  read_words(count, words);
  return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

// Runs slurm-lease with these words to its end. Its exit status, or -1.
static int run_lease(const char* verb, uint32_t job, uint32_t user, const char* slice) {
  char job_text[16], user_text[16];
  snprintf(job_text, sizeof job_text, "%u", job);
  snprintf(user_text, sizeof user_text, "%u", user);
  char* const words[] = {lease_program, (char*)verb, job_text, user_text, (char*)slice, NULL};
  const pid_t child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    setenv("TENDRIL_SLURM_FOLDER", folder, 1);
    setenv("TENDRIL_SLURM_SETTINGS", settings, 1);
    execv(lease_program, words);
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int slurm_spank_job_prolog(spank_t spank, int count, char* words[]) {
  read_words(count, words);
  char* slice = NULL;
  uint32_t job = 0;
  uid_t user = 0;
  if (spank_option_getopt(spank, &option, &slice) != ESPANK_SUCCESS || !is_slice(slice)) return 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS)
    return 0;
  const int status = run_lease("take", job, user, slice);
  if (status != 0) slurm_error("tendril: '%s take' failed (%d)", lease_program, status);
  return 0;
}

int slurm_spank_job_epilog(spank_t spank, int count, char* words[]) {
  read_words(count, words);
  uint32_t job = 0;
  char place[kPathMax + 32];
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) return 0;
  snprintf(place, sizeof place, "%s/%u", folder, job);
  if (access(place, F_OK) == 0) run_lease("end", job, 0, "");
  return 0;
}

// A small file of the job, as text in memory that the caller frees. Null: it is not there.
static char* read_note(uint32_t job, const char* name, size_t* bytes) {
  char path[kPathMax + 64];
  snprintf(path, sizeof path, "%s/%u/%s", folder, job, name);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  char* const text = calloc(1, kFileMax + 1);
  ssize_t got = 0;
  *bytes = 0;
  while (text != NULL && *bytes < kFileMax &&
         (got = read(file, text + *bytes, kFileMax - *bytes)) > 0)
    *bytes += (size_t)got;
  close(file);
  return text;
}

// What LD_LIBRARY_PATH and LD_PRELOAD have of the task's stays behind what the lease wants.
static void set_variable(spank_t spank, const char* name, const char* value) {
  static char old[kFileMax], both[2 * kFileMax];
  const int is_list = starts_with(name, "LD_");
  if (is_list && spank_getenv(spank, name, old, sizeof old) == ESPANK_SUCCESS && *old != 0) {
    snprintf(both, sizeof both, "%s:%s", value, old);
    value = both;
  }
  spank_setenv(spank, name, value, 1);
}

// As the user, before the task's program starts.
int slurm_spank_task_init(spank_t spank, int count, char* words[]) {
  read_words(count, words);
  uint32_t job = 0;
  size_t bytes = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) return 0;
  char* const refused = read_note(job, "refused", &bytes);
  if (refused != NULL) {
    slurm_error("--gpu-slice: %s", refused);
    free(refused);
    return -1;
  }
  char* const variables = read_note(job, "environment", &bytes);
  if (variables == NULL) return 0;
  for (size_t at = 0; at < bytes; at += strlen(variables + at) + 1) {
    char* const sign = strchr(variables + at, '=');
    if (sign == NULL) continue;
    *sign = 0;
    set_variable(spank, variables + at, sign + 1);
    *sign = '=';
  }
  free(variables);
  return 0;
}
