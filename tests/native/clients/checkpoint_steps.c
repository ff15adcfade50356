/* Kills a process after every STRIDE-th instruction of its call that puts another one aside, or brings it back, and looks at
 * what the other is charged: never less than it has on the card. Prints the number of instructions; exits 1 at the first wrong
 * account.
 *
 *   checkpoint_steps checkpoint|restore STRIDE FIRST PAGE
 *
 * All are children of this process, which is of the same tenant and collects them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aliquot_usage.h"
#include "ledger.h"
#include "presence.h"
#include "stepping.h"

#define SIZE (8ull << 20)

enum { RUNNING, LOCKED, CHECKPOINTED };

#define FUNCTIONS(F)                                                                                       \
  F(cuInit, (unsigned)) F(cuDevicePrimaryCtxRetain, (void **, int)) F(cuCtxSetCurrent, (void *))           \
  F(cuMemAlloc_v2, (uint64_t *, size_t)) F(cuMemFree_v2, (uint64_t)) F(cuCheckpointProcessLock, (int, void *)) \
  F(cuCheckpointProcessCheckpoint, (int, void *)) F(cuCheckpointProcessRestore, (int, void *))             \
  F(cuCheckpointProcessGetState, (int, int *))

static void *driver;
#define DECLARE(name, types) static int(*name) types;
FUNCTIONS(DECLARE)
#define LOOK_UP(name, types) name = (int(*) types)dlsym(driver, #name);
static void look_up(void) { FUNCTIONS(LOOK_UP) }

static aq_usage_page *page;
static aq_process self;

static void must(int status) {
  if (status) _exit(3);
}

/* Waits until a child stops itself or ends; its exit status, or -1. */
static int wait_for(pid_t child) {
  int status;
  if (waitpid(child, &status, WUNTRACED) != child) exit(3);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static uint64_t allocate(void) {
  void *context;
  uint64_t block;
  must(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&block, SIZE));
  return block;
}

/* A process with memory. */
static pid_t start_target(void) {
  pid_t child = fork();
  if (child == 0) {
    allocate();
    raise(SIGSTOP);
    _exit(0);
  }
  if (wait_for(child) != -1) exit(3);
  return child;
}

/* What a process of its own finds: the target's state; with `upto` it is brought that far first. */
static int state_of(pid_t target, int upto) {
  pid_t child = fork();
  if (child == 0) {
    int state;
    must(cuInit(0));
    if (upto >= LOCKED) must(cuCheckpointProcessLock(target, NULL));
    if (upto >= CHECKPOINTED) must(cuCheckpointProcessCheckpoint(target, NULL));
    must(cuCheckpointProcessGetState(target, &state));
    _exit(10 + state);
  }
  int status = wait_for(child);
  if (status < 10) exit(3);
  return status - 10;
}

/* It has a slot already: how one is taken is another test's business. */
static void victim(bool restore, pid_t target) {
  int state;
  must(cuMemFree_v2(allocate()));
  must(cuCheckpointProcessGetState(target, &state));
  ptrace(PTRACE_TRACEME, 0, NULL, NULL);
  raise(SIGSTOP);
  must(restore ? cuCheckpointProcessRestore(target, NULL) : cuCheckpointProcessCheckpoint(target, NULL));
  raise(SIGSTOP);
  _exit(0);
}

static void judge(pid_t target, long instruction, bool finished, bool restore) {
  uint64_t used = aq_ledger_used(page, 0);
  int state = state_of(target, RUNNING);
  bool right = state == CHECKPOINTED ? used == 0 || used == SIZE : used == SIZE;
  if (finished) right = used == (restore ? SIZE : 0) && state == (restore ? LOCKED : CHECKPOINTED);
  if (right) return;
  printf("killed after instruction %ld: state %d, in use %llu\n", instruction, state, (unsigned long long)used);
  exit(1);
}

static void expect_nothing(long instruction) {
  uint64_t used = aq_ledger_used(page, 0), tally = aq_tally_bytes(page->cards[0].memory);
  if (!used && !tally) return;
  printf("after the target of instruction %ld: in use %llu of %llu\n", instruction, (unsigned long long)used, (unsigned long long)tally);
  exit(1);
}

static void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  aq_ledger_collect(page, &self, AQ_NO_SLOT);
}

static whereabouts try_at(bool restore, long instruction) {
  pid_t target = start_target();
  state_of(target, restore ? CHECKPOINTED : LOCKED);
  pid_t child = fork();
  if (child == 0) victim(restore, target);
  if (wait_for(child) != -1) exit(3);
  whereabouts reached = go_to(child, instruction);
  end(child);
  judge(target, instruction, reached == FINISHED, restore);
  end(target);
  expect_nothing(instruction);
  return reached;
}

int main(int argc, char **argv) {
  struct stat info;
  if (argc < 5) return 2;
  bool restore = !strcmp(argv[1], "restore");
  int file = open(argv[4], O_RDWR);
  long stride = atol(argv[2]), at = atol(argv[3]);
  page = mmap(NULL, sizeof(aq_usage_file), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (page == MAP_FAILED || !driver || fstat(file, &info)) return 3;
  look_up();
  self = aq_process_self();
  aq_presence_open(&(aq_page_file){.path = argv[4], .device = info.st_dev, .inode = info.st_ino});
  for (whereabouts reached; (reached = try_at(restore, at)) != FINISHED;)
    if (reached == STOPPED) at += stride;
  printf("%ld\n", at);
  return 0;
}
