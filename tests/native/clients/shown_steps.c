/* Changes the limit and the correction of a card together after every STRIDE-th instruction of cuMemGetInfo, and looks whether
 * what it says is free is that of one moment: the difference of both stays the same. Prints the number of instructions tried;
 * exits 1 at the first wrong answer.
 *
 *   shown_steps STRIDE CONTROL_PAGE
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aliquot_control.h"

#define FREE (UINT64_C(64) << 20)
#define MORE (UINT64_C(1) << 20)

static size_t *shown; /* shared */
static int (*ask)(size_t *, size_t *);

static void must(bool good) {
  if (!good) _exit(3);
}

static void victim(void) {
  void *context, *driver = dlopen("libcuda.so.1", RTLD_NOW);
  size_t total;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  must(driver);
  ask = (int (*)(size_t *, size_t *))dlsym(driver, "cuMemGetInfo_v2");
  must(!((int (*)(unsigned))dlsym(driver, "cuInit"))(0));
  must(!((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0));
  must(!((int (*)(void *))dlsym(driver, "cuCtxSetCurrent"))(context));
  must(!ask(shown, &total));
  ptrace(PTRACE_TRACEME, 0, NULL, NULL);
  for (;;) {
    raise(SIGSTOP);
    must(!ask(shown, &total));
  }
}

static int wait_for_stop(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) exit(3);
  return WSTOPSIG(status);
}

/* Lets the victim run `steps` instructions. False: the call had returned before. */
static bool advance(pid_t child, long steps) {
  for (; steps > 0; steps--) {
    ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
    if (wait_for_stop(child) == SIGSTOP) return false;
  }
  return true;
}

static void publish(aq_control_page *page, uint64_t more) {
  static aq_control_page wanted;
  wanted = *page;
  wanted.cards[0].memory_limit = FREE + more;
  wanted.cards[0].memory_adjust = (int64_t)more;
  aq_control_publish(page, &wanted);
}

int main(int argc, char **argv) {
  int file = argc > 2 ? open(argv[2], O_RDWR) : -1;
  aq_control_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  shown = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || shown == MAP_FAILED) return 2;
  long stride = atol(argv[1]), at = 0;
  publish(page, 0);
  pid_t child = fork();
  if (child == 0) victim();
  wait_for_stop(child);
  for (bool inside = true; inside; at += stride) {
    inside = advance(child, at);
    publish(page, at / stride % 2 ? 0 : MORE);
    if (inside) ptrace(PTRACE_CONT, child, NULL, NULL);
    if (inside && wait_for_stop(child) != SIGSTOP) return 3;
    if (*shown != FREE) break;
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  printf(*shown == FREE ? "%ld\n" : "after instruction %ld: %zu are free\n", at, *shown);
  return *shown != FREE;
}
