/* A pid names a process only for as long as it lives; with its start time it names it for good.
 * SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aliquot_pages.h"

typedef struct {
  char state;
  long threads;
  uint64_t start_time;
} stat_line;

/* The fields after the command name, which may hold spaces and parentheses itself. */
static bool parse_stat(char *text, stat_line *out) {
  char *at = strrchr(text, ')');
  if (!at || at[1] != ' ') return false;
  out->state = at[2];
  char *save = NULL;
  int field = 3;
  for (char *token = strtok_r(at + 2, " ", &save); token; token = strtok_r(NULL, " ", &save), field++) {
    if (field == 20) out->threads = strtol(token, NULL, 10);
    if (field == 22) out->start_time = strtoull(token, NULL, 10);
  }
  return field > 22;
}

static bool read_stat(const char *path, stat_line *out) {
  char text[1024];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return false;
  text[length] = '\0';
  return parse_stat(text, out);
}

/* /proc may belong to another pid namespace than ours; then its numbers mean nothing to us. */
static bool proc_is_ours(void) {
  char text[32];
  ssize_t length = readlink("/proc/self", text, sizeof text - 1);
  if (length <= 0) return false;
  text[length] = '\0';
  return strtol(text, NULL, 10) == (long)getpid();
}

/* The kernel gives every program 16 random bytes. Their halves guard the stack and stored pointers, so only a mixture
 * of both may leave the process: it says nothing of either. */
static uint32_t image(void) {
  uint64_t half[2] = {0, 0};
  const void *random = (const void *)getauxval(AT_RANDOM);
  if (random) memcpy(half, random, sizeof half);
  uint64_t mixed = half[0] * UINT64_C(0x9e3779b97f4a7c15) + half[1] * UINT64_C(0xc2b2ae3d27d4eb4f);
  return (uint32_t)(mixed >> 32);
}

aq_process aq_process_self(void) {
  aq_process self = {.pid = (uint32_t)getpid(), .image = image()};
  struct stat namespace;
  stat_line line;
  int saved = errno;
  if (!stat("/proc/self/ns/pid", &namespace)) self.pid_namespace = namespace.st_ino;
  if (proc_is_ours() && read_stat("/proc/self/stat", &line)) self.start_time = line.start_time;
  errno = saved;
  return self;
}

static uint64_t word_of(uint64_t pid, uint64_t namespace, uint64_t start_time) {
  return pid << AQ_OWNER_PID_SHIFT | (namespace & AQ_OWNER_NAMESPACE_MASK) << AQ_OWNER_NAMESPACE_SHIFT |
         (start_time & AQ_OWNER_START_MASK);
}

uint64_t aq_process_word(const aq_process *process) {
  return word_of(process->pid, process->pid_namespace, process->start_time);
}

static bool stat_says_dead(pid_t pid, uint64_t word) {
  char path[32];
  stat_line line;
  if (!(word & AQ_OWNER_START_MASK) || !proc_is_ours()) return false;
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  if (!read_stat(path, &line)) return false;
  if ((line.start_time & AQ_OWNER_START_MASK) != (word & AQ_OWNER_START_MASK)) return true;
  /* A main thread that has returned is a zombie while the others live on. */
  return (line.state == 'Z' || line.state == 'X') && line.threads <= 1;
}

bool aq_process_is_dead(uint64_t word, const aq_process *self) {
  uint64_t ours = aq_process_word(self);
  uint64_t namespace = AQ_OWNER_NAMESPACE_MASK << AQ_OWNER_NAMESPACE_SHIFT;
  if ((word & namespace) != (ours & namespace) || word == ours) return false;
  pid_t pid = (pid_t)(word >> AQ_OWNER_PID_SHIFT);
  if (pid <= 0) return false;
  int saved = errno;
  bool dead = (kill(pid, 0) && errno == ESRCH) || stat_says_dead(pid, word);
  errno = saved;
  return dead;
}
