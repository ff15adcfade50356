/* Threads that make a context, take memory in it, free some of it and end most contexts, over and over. Prints "done" and
 * waits for its stdin to be closed.
 *
 *   context_storm SEED THREADS ROUNDS
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*create_function)(void **, unsigned, int);
typedef int (*context_function)(void *);
typedef int (*pop_function)(void **);
typedef int (*allocate_function)(uint64_t *, size_t);
typedef int (*free_function)(uint64_t);

static create_function create;
static context_function destroy;
static pop_function pop;
static allocate_function allocate;
static free_function release;
static long rounds;

static void need(int status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %d\n", what, status);
  exit(3);
}

static void one_context(unsigned *seed) {
  void *context;
  uint64_t blocks[8];
  need(create(&context, 0, 0), "create");
  int count = rand_r(seed) % 4;
  for (int i = 0; i < count; i++) need(allocate(&blocks[i], 2 << 20), "allocate");
  for (int i = 0; i < count; i++)
    if (rand_r(seed) % 2) need(release(blocks[i]), "free");
  if (rand_r(seed) % 4) need(destroy(context), "destroy");
  else need(pop(&context), "pop");
}

static void *storm(void *data) {
  unsigned seed = (unsigned)(uintptr_t)data;
  for (long i = 0; i < rounds; i++) one_context(&seed);
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[16];
  if (argc < 4) return 2;
  unsigned seed = (unsigned)strtoul(argv[1], NULL, 0);
  int count = atoi(argv[2]);
  rounds = atol(argv[3]);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  create = (create_function)dlsym(driver, "cuCtxCreate_v2");
  destroy = (context_function)dlsym(driver, "cuCtxDestroy_v2");
  pop = (pop_function)dlsym(driver, "cuCtxPopCurrent_v2");
  allocate = (allocate_function)dlsym(driver, "cuMemAlloc_v2");
  release = (free_function)dlsym(driver, "cuMemFree_v2");
  need(((int (*)(unsigned))dlsym(driver, "cuInit"))(0), "init");
  for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, storm, (void *)(uintptr_t)(seed + (unsigned)i));
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  printf("done\n");
  fflush(stdout);
  return read(STDIN_FILENO, threads, 1) < 0;
}
