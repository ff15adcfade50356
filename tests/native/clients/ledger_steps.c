/* Stops or kills a process after every single instruction of a change of the ledger, and looks whether the account is
 * still right. Prints the number of instructions tried; exits 1 at the first wrong account.
 *
 *   ledger_steps add|subtract kill       the victim is killed; what it held must be free again
 *   ledger_steps add|subtract meddle     the same, after its neighbour has changed the card meanwhile
 *   ledger_steps add|subtract resume     the neighbour works while the victim stands still; then the victim goes on
 *   ledger_steps add|subtract age        as resume; and the neighbour's work ends in the middle of a change that looks
 *                                        in the card's tally like one of 256 changes ago
 *   ledger_steps collect kill STRIDE     the victim is collecting a dead process's slot
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger.c" /* its inner parts too: taking a dead process's slot without the look into /proc before */
#include "stepping.h"

#define LIMIT 10000
#define NEIGHBOUR 500
#define BEFORE 100
#define CHANGE 30

static aq_usage_page *page;
static aq_process self;
static int own_slot;
static const char *operation, *ending;

/* The one slot that belongs to neither of the two. */
static int corpse(int slot) {
  for (int index = 0; index < AQ_MAX_SLOTS; index++)
    if (page->slots[index].owner && index != slot && index != own_slot) return index;
  return AQ_NO_SLOT;
}

static void perform(int slot, int dead, uint64_t word) {
  if (!strcmp(operation, "add") && !aq_ledger_add(page, slot, 0, CHANGE, LIMIT)) _exit(3);
  if (!strcmp(operation, "subtract")) aq_ledger_subtract(page, slot, 0, CHANGE);
  if (!strcmp(operation, "collect") && swap(&page->slots[dead].owner, page->slots[dead].owner, word)) free_slot(page, dead);
}

/* A process that dies holding memory, for the victim to collect. */
static void leave_a_corpse(void) {
  pid_t child = fork();
  if (child == 0) {
    aq_process me = aq_process_self();
    int slot = aq_ledger_join(page, &me);
    aq_ledger_add(page, slot, 0, BEFORE, LIMIT);
    aq_ledger_add(page, slot, 3, BEFORE, LIMIT);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, NULL, 0);
}

static void victim(void) {
  aq_process me = aq_process_self();
  int slot = aq_ledger_join(page, &me);
  if (!aq_ledger_add(page, slot, 0, BEFORE, LIMIT)) _exit(3);
  if (!strcmp(operation, "collect")) leave_a_corpse();
  int dead = corpse(slot);
  ptrace(PTRACE_TRACEME, 0, NULL, NULL);
  raise(SIGSTOP);
  perform(slot, dead, aq_process_word(&me));
  raise(SIGSTOP);
  _exit(0);
}

static void fresh_page(void) {
  memset(page, 0, sizeof *page);
  own_slot = aq_ledger_join(page, &self);
  if (!aq_ledger_add(page, own_slot, 0, NEIGHBOUR, LIMIT)) exit(3);
}

static uint64_t held_by_all(int card) {
  uint64_t sum = 0;
  for (int slot = 0; slot < AQ_MAX_SLOTS; slot++) sum += aq_ledger_held(page, slot, card);
  return sum;
}

static void expect(uint64_t used, long step) {
  if (aq_ledger_used(page, 0) == used && held_by_all(0) == used && held_by_all(3) == aq_ledger_used(page, 3)) return;
  printf("after instruction %ld: card %llu, slots %llu, expected %llu\n", step,
         (unsigned long long)aq_ledger_used(page, 0), (unsigned long long)held_by_all(0), (unsigned long long)used);
  exit(1);
}

static void meddle(void) {
  if (!aq_ledger_add(page, own_slot, 0, 7, LIMIT) || aq_ledger_add(page, own_slot, 0, LIMIT, LIMIT)) exit(3);
}

/* The neighbour makes 256 changes, the last of them half. */
static uint64_t half_done;
static const change last = {.bytes = 60};

static void age(void) {
  uint64_t *held = &page->slots[own_slot].memory[0];
  half_done = 0;
  if (aq_tally_slot(page->cards[0].memory) != (unsigned)own_slot) return;
  page->slots[own_slot].intent = pack_intent(&last, aq_tally_count(*held) + 256);
  half_done = (aq_tally_bytes(*held) - last.bytes) << AQ_TALLY_SHIFT | ((aq_tally_count(*held) + 255) & 0xffff);
  *held = half_done;
}

static void finish_ageing(void) {
  if (half_done) swap(&page->slots[own_slot].memory[0], half_done, applied(half_done, &last));
}

static void run_to_end(pid_t child) {
  int status;
  ptrace(PTRACE_DETACH, child, NULL, NULL);
  kill(child, SIGCONT);
  while (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) kill(child, SIGCONT);
}

static uint64_t after_change(void) { return !strcmp(operation, "add") ? BEFORE + CHANGE : BEFORE - CHANGE; }

/* One victim, interfered with after `steps` instructions. */
static whereabouts try_at(long steps) {
  fresh_page();
  pid_t child = fork();
  if (child == 0) victim();
  waitpid(child, NULL, WUNTRACED);
  bool meddled = strcmp(ending, "kill") != 0, aged = !strcmp(ending, "age");
  if (aged && !aq_ledger_add(page, own_slot, 0, 7, LIMIT)) exit(3);
  whereabouts reached = go_to(child, steps);
  uint64_t expected = NEIGHBOUR + (meddled ? 7 : 0);
  if (aged) age();
  else if (meddled) meddle();
  if (aged || !strcmp(ending, "resume")) {
    run_to_end(child);
    if (aged) finish_ageing();
    expect(expected + after_change(), steps);
  } else {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  aq_ledger_collect(page, &self, own_slot);
  expect(expected, steps);
  return reached;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  operation = argv[1];
  ending = argv[2];
  long stride = argc > 3 ? atol(argv[3]) : 1, step = 0;
  page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  self = aq_process_self();
  for (whereabouts reached; (reached = try_at(step)) != FINISHED;)
    if (reached == STOPPED) step += stride;
  printf("%ld\n", step);
  return 0;
}
