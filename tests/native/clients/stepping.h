/* Brings a traced child to the n-th instruction from where it stands, for programs that disturb one child after another, each
 * some instructions later than the one before.
 *
 * To step each child all the way takes the square of the way. But children of one process take one path: it is noted while
 * the first of them are stepped, and the next one runs to the last place on it that is not passed before, and is stepped from
 * there only. Whether it is on that path is looked at with each step; a child that is not is given up, and the next one is
 * stepped all the way (as all are where no trap can be set).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_TEST_STEPPING_H
#define AQ_TEST_STEPPING_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

typedef enum { STOPPED, FINISHED, ASTRAY } whereabouts; /* FINISHED: before its n-th instruction */

#ifdef __x86_64__
#define KNOWS_PLACES true
static bool set_word(pid_t child, size_t offset, uint64_t value) { return !ptrace(PTRACE_POKEUSER, child, offset, value); }
static uint64_t place(pid_t child) { return (uint64_t)ptrace(PTRACE_PEEKUSER, child, offsetof(struct user, regs.rip), NULL); }

/* A trap in this thread alone, by a register of the processor: one in the code would be stepped on by others. */
static bool set_trap(pid_t child, uint64_t address) {
  return set_word(child, offsetof(struct user, u_debugreg[0]), address) && set_word(child, offsetof(struct user, u_debugreg[7]), 1);
}
static void clear_trap(pid_t child) { set_word(child, offsetof(struct user, u_debugreg[7]), 0); }
#else
#define KNOWS_PLACES false
static uint64_t place(pid_t child) { return (void)child, 0; }
static bool set_trap(pid_t child, uint64_t address) { return (void)child, (void)address, false; }
static void clear_trap(pid_t child) { (void)child; }
#endif

#define LONGEST_PATH (1 << 18)
#define PLACES (1 << 16)

static uint64_t path[LONGEST_PATH]; /* [n]: where a child stands after n instructions */
static long noted, milestone;       /* path[milestone] is the last noted place that is not passed before */
static uint64_t passed[PLACES];     /* a hash table of the places on the path */
static int distinct;

static void forget_path(void) {
  for (int i = 0; i < PLACES; i++) passed[i] = 0;
  noted = milestone = distinct = 0;
}

static bool is_new(uint64_t address) {
  size_t index = (address * UINT64_C(0x9e3779b97f4a7c15)) >> 48;
  for (; passed[index]; index = (index + 1) % PLACES)
    if (passed[index] == address) return false;
  if (distinct == PLACES / 2) return false;
  passed[index] = address;
  distinct++;
  return true;
}

static void note(uint64_t address) {
  if (!KNOWS_PLACES || noted == LONGEST_PATH) return;
  if (is_new(address)) milestone = noted;
  path[noted++] = address;
}

/* Lets a child go on until it is stopped. False: it has finished. */
static bool resume(pid_t child, int request) {
  int status;
  ptrace(request, child, NULL, NULL);
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) exit(3);
  return WSTOPSIG(status) != SIGSTOP;
}

/* Lets a child run to the place where its trap is set. */
static whereabouts run_to(pid_t child, uint64_t address) {
  bool stopped = resume(child, PTRACE_CONT) && place(child) == address;
  clear_trap(child);
  return stopped ? STOPPED : ASTRAY;
}

/* Brings a child to its n-th instruction. Who is ASTRAY has to be killed; the next child will not be. */
static whereabouts go_to(pid_t child, long n) {
  whereabouts reached = STOPPED;
  long at = 0;
  if (!noted) note(place(child));
  if (milestone && milestone <= n && set_trap(child, path[milestone])) reached = run_to(child, path[at = milestone]);
  for (; reached == STOPPED && at < n; at++) {
    if (!resume(child, PTRACE_SINGLESTEP)) reached = at < noted - 1 ? ASTRAY : FINISHED;
    else if (at + 1 >= noted) note(place(child));
    else if (path[at + 1] != place(child)) reached = ASTRAY;
  }
  if (reached == ASTRAY) forget_path();
  return reached;
}

#endif
