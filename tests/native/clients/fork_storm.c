/* Children by fork, each of which allocates BYTES; prints how many were served.
 *
 *   fork_storm COUNT TOGETHER BYTES ENDING [ASK]
 *     TOGETHER  so many live at a time, all holding their memory at once
 *     ENDING    exit, return (by exit, with its handlers) or kill: how they end
 *     ASK       they only ask how much is free, and none allocates
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *driver;
static const char *ending;
static size_t bytes;
static int asks, served[2], held[2];

static int start(void) {
  void *context;
  if (((int (*)(unsigned))dlsym(driver, "cuInit"))(0)) return 1;
  if (((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0)) return 1;
  return ((int (*)(void *))dlsym(driver, "cuCtxSetCurrent"))(context);
}

static int use_memory(void) {
  uint64_t block, total;
  if (asks) return ((int (*)(uint64_t *, uint64_t *))dlsym(driver, "cuMemGetInfo_v2"))(&block, &total);
  return ((int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2"))(&block, bytes);
}

static void child(void) {
  char byte = start() || use_memory() ? 0 : 1;
  if (write(served[1], &byte, 1) != 1) _exit(3);
  close(held[1]);
  if (read(held[0], &byte, 1)) _exit(3); /* until all are there */
  if (!strcmp(ending, "kill")) kill(getpid(), SIGKILL);
  if (!strcmp(ending, "return")) exit(0);
  _exit(0);
}

static int together(int count) {
  int good = 0;
  char byte;
  if (pipe(held)) exit(3);
  for (int i = 0; i < count; i++) {
    pid_t pid = fork();
    if (pid < 0) exit(3);
    if (pid == 0) child();
  }
  for (int i = 0; i < count && read(served[0], &byte, 1) == 1; i++) good += byte;
  close(held[1]);
  close(held[0]);
  while (wait(NULL) > 0) {
  }
  return good;
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  int count = atoi(argv[1]), at_once = atoi(argv[2]), good = 0;
  bytes = strtoull(argv[3], NULL, 10);
  ending = argv[4];
  asks = argc > 5;
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver || pipe(served)) return 3;
  for (int done = 0; done < count; done += at_once) good += together(at_once);
  printf("%d\n", good);
  return 0;
}
