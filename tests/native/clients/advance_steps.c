/* Stops or kills a process after every STRIDE-th instruction of a change of the ledger in which advances take part, and
 * looks whether its neighbour is shown, given and refused what is right at that very moment, and whether the account is
 * right in the end. Prints the number of instructions tried; exits 1 at the first wrong answer.
 *
 *   advance_steps OPERATION ENDING STRIDE
 *     OPERATION  first     a process's first addition, which leaves it an advance
 *                take      an addition out of the advance      give      a subtraction into it
 *                grow      an addition that it does not hold   shrink    a subtraction that it does not take
 *                squeeze   an addition that needs the neighbour's advance, and all that is left of the slice
 *                refuse    an addition that does not fit
 *                collect   a dead process's slot, which has an advance, is given back
 *     ENDING     kill      the process is killed there
 *                resume    the neighbour takes all that is free and gives it back; then the process goes on
 *                crowd     the neighbour keeps it; the process's change must succeed all the same
 *                rival     squeeze only: the neighbour takes a little from its advance; one of both gets what it wants
 *                shake     squeeze only: the neighbour ends its own advance; what fitted still fits
 *                age       squeeze only: the neighbour's advance has ended when the process goes on, but the tally says the
 *                          same as before
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

#define MIB (UINT64_C(1) << 20)
#define LIMIT (1024 * MIB)
#define NEIGHBOUR (50 * MIB)
#define BEFORE (100 * MIB)
#define DEAD (30 * MIB)
#define SMALL 4096

typedef struct {
  const char *name;
  uint64_t before, after; /* what the victim, and the dead, have in use */
} operation;

static const operation operations[] = {
    {"first", 0, BEFORE},
    {"take", BEFORE, BEFORE + SMALL},
    {"give", BEFORE, BEFORE - SMALL},
    {"grow", BEFORE, BEFORE + 100 * MIB},
    {"shrink", BEFORE, BEFORE - 60 * MIB},
    {"squeeze", BEFORE, LIMIT - NEIGHBOUR},
    {"refuse", BEFORE, BEFORE},
    {"collect", BEFORE + DEAD, BEFORE},
};

static aq_usage_file *file;
static aq_usage_page *page; /* its first part */
static aq_process self;
static int own_slot;
static const operation *tried;
static const char *ending;
static pid_t tracee; /* of the process that looks */

static void must(bool good, const char *what, long step) {
  if (good) return;
  printf("%s %s after instruction %ld: %s (card %llu, in use %llu)\n", tried->name, ending, step, what,
         (unsigned long long)aq_tally_bytes(page->cards[0].memory), (unsigned long long)aq_ledger_used(page, 0));
  fflush(stdout);
  if (tracee) kill(tracee, SIGKILL);
  _exit(1);
}

static bool is(const char *name) { return !strcmp(tried->name, name); }

static bool ends(const char *name) { return !strcmp(ending, name); }
static bool may_lose(void) { return ends("age") || ends("rival"); }

static int corpse(int slot) {
  for (int index = 0; index < AQ_MAX_SLOTS; index++)
    if (page->slots[index].owner && index != slot && index != own_slot) return index;
  return AQ_NO_SLOT;
}

static void perform(int slot, int dead, uint64_t word) {
  uint64_t more = tried->after - tried->before, less_bytes = tried->before - tried->after;
  bool adds = tried->after > tried->before;
  if (is("refuse")) must(!aq_ledger_add(page, slot, 0, LIMIT - BEFORE - NEIGHBOUR + 1, LIMIT), "it fits", -1);
  else if (is("collect")) swap(&page->slots[dead].owner, page->slots[dead].owner, word), free_slot(page, dead);
  else if (adds) must(aq_ledger_add(page, slot, 0, more, LIMIT) || may_lose(), "its addition is refused", -1);
  else aq_ledger_subtract(page, slot, 0, less_bytes);
}

static void leave_a_corpse(void) {
  pid_t child = fork();
  if (child == 0) {
    aq_process me = aq_process_self();
    aq_ledger_add(page, aq_ledger_join(page, &me), 0, DEAD, LIMIT);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, NULL, 0);
}

static void victim(void) {
  aq_process me = aq_process_self();
  int slot = aq_ledger_join(page, &me), dead;
  if (is("collect")) leave_a_corpse();
  if (!is("first")) must(aq_ledger_add(page, slot, 0, BEFORE, LIMIT), "no room", -1);
  dead = corpse(slot);
  ptrace(PTRACE_TRACEME, 0, NULL, NULL);
  raise(SIGSTOP); /* the neighbour takes what it has here, after the victim: both have advances */
  perform(slot, dead, aq_process_word(&me));
  raise(SIGSTOP);
  _exit(0);
}

static void run_to_end(pid_t child) {
  int status;
  ptrace(PTRACE_DETACH, child, NULL, NULL);
  kill(child, SIGCONT);
  while (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) kill(child, SIGCONT);
  if (!WIFEXITED(status) || WEXITSTATUS(status)) exit(1);
}

static uint64_t larger(void) { return tried->before > tried->after ? tried->before : tried->after; }
static uint64_t smaller(void) { return tried->before < tried->after ? tried->before : tried->after; }

/* What the neighbour sees and gets while the victim stands still. Returns what it took. */
static uint64_t demand(long step) {
  uint64_t used = aq_ledger_used(page, 0), all = LIMIT - NEIGHBOUR - larger();
  must(used == NEIGHBOUR + tried->before || used == NEIGHBOUR + tried->after, "what is shown was never in use", step);
  must(aq_ledger_add(page, own_slot, 0, all, LIMIT), "what fits is refused", step);
  must(!aq_ledger_add(page, own_slot, 0, larger() - smaller() + 1, LIMIT), "what does not fit is given", step);
  return all;
}

/* The neighbour's advance is taken in by a change, and its tally brought back to what the victim may have seen. */
static void age(long step) {
  uint64_t seen = page->cards[0].memory;
  uint64_t held = aq_ledger_held(page, own_slot, 0), charged = aq_tally_bytes(page->slots[own_slot].memory[0]);
  if (charged == held || aq_tally_slot(seen) != (unsigned)own_slot) return; /* the victim's change is made */
  must(aq_ledger_add(page, own_slot, 0, charged - held, LIMIT + charged), "the neighbour uses its advance", step);
  aq_advance_forget(page, own_slot);
  page->slots[own_slot].memory[0] = charged << AQ_TALLY_SHIFT | aq_tally_count(page->slots[own_slot].memory[0]);
  page->cards[0].memory = seen;
}

static bool has_advance(int slot) {
  return aq_ledger_held(page, slot, 0) < aq_tally_bytes(page->slots[slot].memory[0]);
}

/* What no other process may take out of the slot's advance any more. */
static uint64_t closed(int slot) {
  bool open = slot < AQ_ADVANCE_SLOTS && file->advances[slot].cards[0].now & AQ_ADVANCE_OPEN;
  return open ? 0 : aq_tally_bytes(page->slots[slot].memory[0]) - aq_ledger_held(page, slot, 0);
}

static void expect(uint64_t used, long step) {
  uint64_t held = 0, advances = 0, tally = aq_tally_bytes(page->cards[0].memory), unused = 0;
  for (int slot = 0; slot < AQ_MAX_SLOTS; slot++) {
    held += aq_ledger_held(page, slot, 0);
    advances += aq_tally_bytes(page->slots[slot].memory[0]) - aq_ledger_held(page, slot, 0);
    unused += closed(slot);
  }
  must(aq_ledger_used(page, 0) == used, "in use is another", step);
  must(held == used, "what processes hold is not what is in use", step);
  must(tally == used + advances, "the tally is not use and advances", step);
  must(tally <= LIMIT + unused, "what is open lies beyond the limit", step);
  must(page->cards[0].memory_peak <= LIMIT, "the peak is beyond the limit", step);
}

/* One victim, interfered with after `steps` instructions. */
static whereabouts try_at(long steps) {
  memset(file, 0, sizeof *file);
  page->size = AQ_USAGE_FILE_SIZE;
  own_slot = aq_ledger_join(page, &self);
  must(aq_ledger_add(page, own_slot, 0, NEIGHBOUR, LIMIT), "no room", steps);
  pid_t child = fork();
  if (child == 0) tracee = 0, victim();
  tracee = child;
  waitpid(child, NULL, WUNTRACED);
  aq_ledger_add(page, own_slot, 0, MIB, LIMIT), aq_ledger_subtract(page, own_slot, 0, MIB);
  must(has_advance(own_slot) != is("first") && has_advance(1) != is("first"), "there is no advance to begin with", steps);
  whereabouts reached = go_to(child, steps);
  if (ends("kill")) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  } else if (ends("shake")) {
    must(!aq_ledger_add(page, own_slot, 0, LIMIT, LIMIT), "more than there is", steps);
    aq_ledger_subtract(page, own_slot, 0, SMALL);
    run_to_end(child);
    expect(NEIGHBOUR - SMALL + tried->after, steps);
    tracee = 0;
    return reached;
  } else if (may_lose()) {
    if (ends("age")) age(steps);
    else aq_ledger_add(page, own_slot, 0, SMALL, LIMIT);
    run_to_end(child);
    must(aq_ledger_used(page, 0) <= LIMIT, "more is in use than the limit", steps);
    bool one = aq_ledger_used(page, 0) == LIMIT || aq_ledger_used(page, 0) == NEIGHBOUR + BEFORE + SMALL;
    must(ends("age") || one, "neither gets what it wants", steps);
    tracee = 0;
    return reached;
  } else {
    uint64_t taken = demand(steps);
    if (ends("resume")) aq_ledger_subtract(page, own_slot, 0, taken), taken = 0;
    run_to_end(child);
    expect(NEIGHBOUR + tried->after + taken, steps);
    aq_ledger_subtract(page, own_slot, 0, taken);
  }
  aq_ledger_collect(page, &self, own_slot);
  expect(NEIGHBOUR, steps);
  must(aq_ledger_add(page, own_slot, 0, LIMIT - NEIGHBOUR, LIMIT), "not all is free again", steps);
  tracee = 0;
  return reached;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
    if (!strcmp(operations[i].name, argv[1])) tried = &operations[i];
  ending = argv[2];
  long stride = atol(argv[3]), step = argc > 4 ? atol(argv[4]) : 0;
  file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  page = &file->page;
  self = aq_process_self();
  if (!tried) return 2;
  for (whereabouts reached; (reached = try_at(step)) != FINISHED;)
    if (reached == STOPPED) step += stride;
  printf("%ld\n", step);
  return 0;
}
