/* Processes of one tenant allocate and free at random while some are stopped at random moments.
 *
 *   advance_race fits SEED PROCESSES MILLISECONDS   each stays within a part of its own, and one takes all that the parts
 *                                                   leave, again and again: nobody may be refused. Some are killed, and
 *                                                   followed by new ones
 *   advance_race full SEED PROCESSES MILLISECONDS   each takes what it can get: what all have at once, counted by
 *                                                   themselves, is never more than the slice
 *
 * In the end nothing is left behind. Prints how often the greedy one asked; exits 1 with a sentence when a promise is broken.
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ledger.h"

#define MIB (UINT64_C(1) << 20)
#define LIMIT (4096 * MIB)
#define PROCESSES 16

typedef struct {
  aq_usage_file file;
  uint64_t has[PROCESSES + 1];
  uint64_t sum; /* never more than all have: raised after bytes were given, lowered before they are given back */
  char broken[128];
} arena;

static arena *shared;
static bool all_fits;
static uint64_t part; /* what each may have */

static void broken(const char *what, uint64_t bytes) {
  if (!shared->broken[0]) snprintf(shared->broken, sizeof shared->broken, "%s: %llu", what, (unsigned long long)bytes);
}

static void take(int who, int slot, uint64_t bytes) {
  if (!aq_ledger_add(&shared->file.page, slot, 0, bytes, LIMIT)) {
    if (all_fits) broken("what fits was refused", bytes);
    return;
  }
  shared->has[who] += bytes;
  uint64_t sum = __atomic_add_fetch(&shared->sum, bytes, __ATOMIC_SEQ_CST);
  if (!all_fits && sum > LIMIT) broken("more is in use than the slice", sum);
}

static void give(int who, int slot, uint64_t bytes) {
  shared->has[who] -= bytes;
  __atomic_sub_fetch(&shared->sum, bytes, __ATOMIC_SEQ_CST);
  aq_ledger_subtract(&shared->file.page, slot, 0, bytes);
}

/* Small most of the time, as what an advance is for; sometimes more than it holds. */
static uint64_t a_size(unsigned *seed) {
  return rand_r(seed) % 16 ? 1 + (uint64_t)rand_r(seed) % MIB : 1 + (uint64_t)rand_r(seed) % (256 * MIB);
}

static void churn(int who, unsigned seed) {
  aq_process me = aq_process_self();
  int slot = aq_ledger_join(&shared->file.page, &me);
  while (!shared->broken[0]) {
    uint64_t bytes = a_size(&seed), has = shared->has[who];
    if (has + bytes <= part && rand_r(&seed) % 2) take(who, slot, bytes);
    else if (has) give(who, slot, bytes < has ? bytes : has);
  }
}

static pid_t begin(int who, unsigned seed) {
  pid_t child = fork();
  if (child == 0) churn(who, seed), _exit(0);
  return child;
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void be_greedy(int slot, uint64_t bytes) {
  take(PROCESSES, slot, bytes);
  uint64_t peak = __atomic_load_n(&shared->file.page.cards[0].memory_peak, __ATOMIC_RELAXED), has = shared->has[PROCESSES];
  if (peak > LIMIT) broken("the peak is beyond the limit", peak);
  give(PROCESSES, slot, has);
}

static void replace(pid_t *child, int who, unsigned *seed, const aq_process *self, int slot) {
  kill(*child, SIGKILL);
  waitpid(*child, NULL, 0);
  shared->has[who] = 0;
  aq_ledger_collect(&shared->file.page, self, slot);
  *child = begin(who, (unsigned)rand_r(seed));
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  unsigned seed = (unsigned)atoi(argv[2]);
  int count = atoi(argv[3]) < PROCESSES ? atoi(argv[3]) : PROCESSES;
  uint64_t end = now_ms() + (uint64_t)atol(argv[4]), rest;
  all_fits = !strcmp(argv[1], "fits");
  part = all_fits ? 200 * MIB : LIMIT;
  rest = all_fits ? LIMIT - (uint64_t)count * part : LIMIT / 2;
  pid_t children[PROCESSES];
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared->file.page.size = AQ_USAGE_FILE_SIZE;
  aq_process self = aq_process_self();
  int slot = aq_ledger_join(&shared->file.page, &self);
  for (int who = 0; who < count; who++) children[who] = begin(who, (unsigned)rand_r(&seed));
  long served = 0;
  for (; now_ms() < end && !shared->broken[0]; served++) {
    int who = rand_r(&seed) % count, stopped = rand_r(&seed) % count;
    bool stop = rand_r(&seed) % 4 == 0;
    if (stop) kill(children[stopped], SIGSTOP);
    for (int i = 0; i < 20; i++) be_greedy(slot, rest);
    if (stop) kill(children[stopped], SIGCONT);
    if (all_fits && rand_r(&seed) % 50 == 0) replace(&children[who], who, &seed, &self, slot);
  }
  for (int who = 0; who < count; who++) kill(children[who], SIGKILL), waitpid(children[who], NULL, 0);
  aq_ledger_collect(&shared->file.page, &self, slot);
  if (!shared->broken[0] && aq_ledger_used(&shared->file.page, 0)) broken("left behind", aq_ledger_used(&shared->file.page, 0));
  if (!shared->broken[0] && !aq_ledger_add(&shared->file.page, slot, 0, LIMIT, LIMIT)) broken("not all is free again", 0);
  if (shared->broken[0]) puts(shared->broken);
  else printf("%ld\n", served);
  return shared->broken[0] != 0;
}
